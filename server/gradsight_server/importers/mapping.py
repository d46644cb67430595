"""`--map norm=my_col,step=it`: a person says which of a log's columns are which of ours."""

from gradsight_server.errors import SettingsError
from gradsight_server.importers.names import OUR_NAMES, column_of

SHORT = {
    "norm": "grad_norm_before_clip",
    "scale": "loss_scale",
    "coef": "clip_coef",
    "threshold": "max_norm",
    "time": "wall_time_s",
}


def parse_map(text: str | None) -> tuple[tuple[str, str], ...]:
    """((our column, the log's name), …)

    Raises:
        SettingsError: names what cannot be right.
    """
    found: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        ours, equals, theirs = (piece.strip() for piece in part.partition("="))
        if not equals or not ours or not theirs:
            raise SettingsError(f"--map must be like norm=my_column,step=it; got {part.strip()!r}.")
        column = SHORT.get(ours) or column_of(ours)
        if column is None:
            raise SettingsError(f"--map: {ours!r} is no column; known are {', '.join(sorted({*SHORT, *OUR_NAMES}))}.")
        if column in found:
            raise SettingsError(f"--map names {ours!r} twice: {found[column]!r} and {theirs!r}.")
        if theirs in found.values():
            raise SettingsError(f"--map names {theirs!r} for two columns; a column of a log can be one of ours.")
        found[column] = theirs
    return tuple(found.items())
