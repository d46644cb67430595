"""What a server can be told: environment variables `GRADSIGHT_…`, over which the command line's options go."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gradsight_server.errors import SettingsError

MIB = 2**20


class Settings(BaseSettings):
    """One server's settings; every field is also an environment variable, `token` is `GRADSIGHT_TOKEN`."""

    model_config = SettingsConfigDict(env_prefix="GRADSIGHT_", extra="ignore", frozen=True)

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8420
    """0 takes any free port."""
    db: str = "sqlite:///gradsight.db"
    """A database URL, or the path of a SQLite file."""
    db_sync: Literal["normal", "full"] = "normal"
    """`full` also survives a power cut, at the price of one disk flush per commit."""
    token: SecretStr | None = None
    """What clients and people must show; None = everyone may read and write."""
    insecure_no_auth: bool = False
    """Serve an address other than loopback without a token."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Further names this server is asked for by; in the environment separated by commas, `*` is any."""

    keep_raw_days: Annotated[float | None, Field(gt=0)] = None
    """Raw steps older than this are removed, their rollups stay; None keeps them."""
    keep_raw_steps: Annotated[int | None, Field(ge=1)] = None
    """Of each attempt at a stream so many of the newest raw steps are kept (2,048 always are); None keeps all."""

    max_body_bytes: Annotated[int, Field(ge=1)] = 16 * MIB
    """Largest request body, as sent."""
    max_decoded_bytes: Annotated[int, Field(ge=1)] = 32 * MIB
    """Largest request body once decompressed."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        names = value.split(",") if isinstance(value, str) else value
        return tuple(name.strip() for name in names if name.strip()) if isinstance(names, list | tuple) else names

    @field_validator("token", mode="after")
    @classmethod
    def _empty_token_is_none(cls, value: SecretStr | None) -> SecretStr | None:
        """A compose file passes an unset token on as an empty one; one read from a file ends in a newline."""
        text = value.get_secret_value().strip() if value else ""
        return SecretStr(text) if text else None

    @property
    def db_url(self) -> str:
        return self.db if "://" in self.db else f"sqlite:///{self.db}"

    @property
    def shown_db(self) -> str:
        """The database's URL without the password in it."""
        return re.sub(r"(?<=://)([^:/@]*):[^@/]*@", r"\1:***@", self.db_url)

    @property
    def secret(self) -> str | None:
        """The token as text: for comparing, never for showing."""
        return self.token.get_secret_value() if self.token else None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_exposure(self) -> None:
        """Refuse to show runs to a whole network because of a forgotten token.

        Raises:
            SettingsError: an address other than loopback has neither a token nor a spoken wish to go without.
        """
        if not (self.is_loopback or self.token or self.insecure_no_auth):
            raise SettingsError(
                f"host {self.host!r} can be reached from other machines: set GRADSIGHT_TOKEN (or --token) "
                "to a secret, or say --insecure-no-auth."
            )


def load_settings(**options: object) -> Settings:
    """The settings from the environment, with the options given (those not None) put over them.

    Raises:
        SettingsError: names the setting and the value that cannot be right.
    """
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]  # checked by pydantic just now
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        shown = "" if name == "token" else f", got {first['input']!r}"
        raise SettingsError(f"{name}: {first['msg']}{shown}.") from None
