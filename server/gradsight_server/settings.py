"""What a server can be told: environment variables `GRADSIGHT_…`, over which the command line's options go."""

import ipaddress
import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gradsight_server.errors import SettingsError

MIB = 2**20
SECRETS = ("token", "notifications", "db")  # a database's address may have a password in it


class NotificationTarget(BaseModel):
    """Where alerts are told to, and which."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: SecretStr
    """As Apprise has it: `slack://…`, `mailto://…`, `json://host/path`."""
    name: Annotated[str | None, Field(min_length=1, max_length=64)] = None
    """What people see of it; the service's where left out."""
    project: Annotated[str, Field(min_length=1, max_length=256)] = "*"
    """A pattern as for file names: `lm-*`."""
    severity: Literal["info", "warning", "critical"] = "warning"
    """Told are alerts of this severity, and worse ones."""


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

    notifications: Annotated[tuple[NotificationTarget, ...], NoDecode] = ()
    """Where alerts are told to: URLs as Apprise has them, parted by spaces; or a JSON list of them and of
    `{"url": …, "name": …, "project": "lm-*", "severity": "critical"}`; or `@` and the path of a file with either."""
    public_url: str | None = None
    """What people reach this server by, for links in messages: `https://gradsight.example.org`."""

    max_body_bytes: Annotated[int, Field(ge=1)] = 16 * MIB
    """Largest request body, as sent."""
    max_decoded_bytes: Annotated[int, Field(ge=1)] = 32 * MIB
    """Largest request body once decompressed."""
    max_import_bytes: Annotated[int, Field(ge=1)] = 64 * MIB
    """Largest training log that is taken over REST, as sent; unpacked it may be four times as large."""
    max_import_s: Annotated[float, Field(gt=0)] = 60.0
    """How long reading such a log may take."""

    @field_validator("db", mode="after")
    @classmethod
    def _check_db(cls, value: str) -> str:
        scheme, has_scheme, _ = value.partition("://")
        if has_scheme and not re.fullmatch(r"sqlite|postgres(ql)?(\+psycopg)?", scheme):
            raise ValueError(f"it must be a file, or begin with postgresql+psycopg:// or sqlite:///, got {scheme}://…")
        return value

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _split_hosts(cls, value: object) -> object:
        names = value.split(",") if isinstance(value, str) else value
        return tuple(name.strip() for name in names if name.strip()) if isinstance(names, list | tuple) else names

    @field_validator("notifications", mode="before")
    @classmethod
    def _read_notifications(cls, value: object) -> object:
        if isinstance(value, str):
            text = value.strip()
            if text.startswith("@"):
                try:
                    text = Path(text[1:]).expanduser().read_text(encoding="utf-8").strip()
                except OSError as error:
                    raise ValueError(f"the file cannot be read ({error.strerror})") from None
            value = json.loads(text) if text.startswith("[") else text.split()
        if not isinstance(value, list | tuple):
            return value
        return tuple({"url": item} if isinstance(item, str) else item for item in value)

    @field_validator("public_url", mode="after")
    @classmethod
    def _check_public_url(cls, value: str | None) -> str | None:
        text = (value or "").strip().rstrip("/")
        if text and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
            raise ValueError("it must begin with http:// or https:// and name a host")
        return text or None

    @field_validator("token", mode="after")
    @classmethod
    def _empty_token_is_none(cls, value: SecretStr | None) -> SecretStr | None:
        """A compose file passes an unset token on as an empty one; one read from a file ends in a newline."""
        text = value.get_secret_value().strip() if value else ""
        if any("\ud800" <= character <= "\udfff" or character < " " or character == "\x7f" for character in text):
            raise ValueError("it must be one line of text in UTF-8, without control characters")
        return SecretStr(text) if text else None

    @property
    def db_url(self) -> str:
        if "://" not in self.db:
            return f"sqlite:///{self.db}"
        return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", self.db)

    @property
    def shown_db(self) -> str:
        """The database's URL without the password in it."""
        return re.sub(r"(?<=://)([^:/@]*):[^@/]*@", r"\1:***@", self.db_url)

    @property
    def address(self) -> str | None:
        """What links in messages begin with; None where nobody can know it."""
        if self.public_url is not None or self.port == 0 or not self.is_loopback:
            return self.public_url
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

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
        shown = "" if str(first["loc"][0]) in SECRETS else f", got {first['input']!r}"
        raise SettingsError(f"{name}: {first['msg']}{shown}.") from None
