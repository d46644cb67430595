"""`gradsight report`: a run on a server, or a log without one, as HTML, Markdown or JSON."""

import functools
import json
import math
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from gradsight_server.asking import get_json
from gradsight_server.assets import find_package_file
from gradsight_server.diagnosing import RUN_ID
from gradsight_server.errors import SettingsError
from gradsight_server.importers.format import Options
from gradsight_server.importers.importing import Wish, import_log
from gradsight_server.importers.mapping import parse_map
from gradsight_server.importers.opening import standard_input
from gradsight_server.importers.reading import Source, sources_of
from gradsight_server.importing import HttpDestination
from gradsight_server.reports.contents import Contents, gather
from gradsight_server.reports.markdown import markdown
from gradsight_server.reports.page import page

Kind = Literal["html", "md", "json"]
KINDS: tuple[Kind, ...] = ("html", "md", "json")
BY_NAME: dict[str, Kind] = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".json": "json"}


def write_report(
    target: str,
    *,
    output: Path | None,
    kind: str | None,
    max_norm: float | None,
    log_format: str,
    columns: str | None,
    server: str,
    token: str | None,
) -> int:
    """Writes the report; the exit code.

    Raises:
        SettingsError: wrong use.
        NothingToReadError: no such run, or nothing in the log.
    """
    made = _kind(kind, output)
    if made == "html" and output is None and sys.stdout.isatty():
        raise SettingsError("an HTML report is 5 MB: name a file with -o, or ask for --format md.")
    wish = Wish(Options(parse_map(columns)), max_norm)
    contents = _found(target, wish, log_format, server, token, with_figures=made == "html")
    text = _written(contents, made)
    if output is None:
        print(text, end="")
        return 0
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"-o {str(output)!r} cannot be written: {error.strerror}.") from None
    print(f"{output} ({output.stat().st_size / 1e6:.1f} MB)" if made == "html" else str(output))
    return 0


def _kind(asked: str | None, output: Path | None) -> Kind:
    """What is asked for, or what the file's name says."""
    if asked is None:
        if output is None:
            return "html"
        if (found := BY_NAME.get(output.suffix.lower())) is None:
            raise SettingsError(f"-o must end in .html, .htm, .md or .json, or say --format; got {output.name!r}.")
        return found
    for kind in KINDS:
        if asked == kind:
            return kind
    raise SettingsError(f"--format must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {asked!r}.")


def _written(contents: Contents, kind: Kind) -> str:
    if kind == "json":
        return json.dumps(contents.to_json(), allow_nan=False) + "\n"
    if kind == "md":
        return markdown(contents)
    plotly_js = find_package_file("plotly", "package_data", "plotly.min.js").read_text("utf-8")
    return page(contents, plotly_js=plotly_js, written_at_s=time.time())


def _found(target: str, wish: Wish, log_format: str, server: str, token: str | None, *, with_figures: bool) -> Contents:
    max_norm = wish.max_norm
    if RUN_ID.fullmatch(target) and not Path(target).exists():
        if max_norm is not None:
            raise SettingsError("--max-norm is for logs: a run on a server knows its own threshold.")
        if wish.options.columns or log_format != "auto":
            given = "--map is" if wish.options.columns else "--log-format is"
            raise SettingsError(f"{given} for logs: what a run on a server is made of is known.")
        return gather(functools.partial(get_json, server, token), target, with_figures=with_figures)
    if max_norm is not None and not 0 < max_norm < math.inf:
        raise SettingsError(f"--max-norm must be a positive number, got {max_norm!r}.")
    return _of_log(target, wish, log_format, with_figures=with_figures)


def _of_log(target: str, wish: Wish, log_format: str, *, with_figures: bool) -> Contents:
    """A log becomes a run on a server of its own, which then is asked like any other."""
    from gradsight_server.private_server import private_server  # late: FastAPI

    with private_server() as (url, token), ExitStack() as opened:
        if target == "-":
            path = opened.enter_context(standard_input())
            sources = sources_of(path, log_format, "standard input", wish.options)
            sources = [Source(one.path, one.format, one.name, identity="-") for one in sources]
        else:
            sources = sources_of(Path(target), log_format, options=wish.options)
        if len(sources) > 1:
            raise SettingsError(f"{target!r} holds {len(sources)} logs: name one of them.")
        destination = HttpDestination(url, token)
        opened.callback(destination.close)
        imported = import_log(sources[0], destination, wish)
        notes = list(imported.notes)
        if len(imported.runs) > 1:
            others = ", ".join(run.name for run in imported.runs[:-1])
            notes.insert(0, f"This log holds {len(imported.runs)} runs; this is the last of them, after {others}.")
        return gather(
            functools.partial(get_json, url, token), imported.runs[-1].run_id, with_figures=with_figures, notes=notes
        )
