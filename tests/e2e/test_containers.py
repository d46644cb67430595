"""What the compose file and the image promise, as far as reading them tells: no Docker engine is needed."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SCALE: dict[str, dict[str, Any]] = {
    name: service for name, service in COMPOSE["services"].items() if service.get("profiles") == ["scale"]
}


@pytest.fixture
def server() -> dict[str, Any]:
    [service] = (service for service in COMPOSE["services"].values() if "profiles" not in service)
    return service  # type: ignore[no-any-return]


def last_command(instruction: str) -> list[str]:
    """The words of the Dockerfile's last instruction of a kind, given in its JSON form."""
    found: list[str] = json.loads(re.findall(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    return found


def test_compose_asks_for_a_token(server: dict[str, Any]) -> None:
    assert re.fullmatch(r"\$\{GRADSIGHT_TOKEN:\?.+\}", server["environment"]["GRADSIGHT_TOKEN"])


def test_compose_hands_on_whom_alerts_tell() -> None:
    for service in (COMPOSE["services"]["server"], SCALE["replica"]):
        for name in ("GRADSIGHT_NOTIFICATIONS", "GRADSIGHT_PUBLIC_URL"):
            assert service["environment"][name] == f"${{{name}:-}}"


def test_compose_keeps_the_image_s_database_on_a_volume(server: dict[str, Any]) -> None:
    command = last_command("CMD")
    folder = Path(command[command.index("--db") + 1].removeprefix("sqlite:///")).parent
    assert f"data:{folder}" in server["volumes"]
    assert f"VOLUME {folder}" in DOCKERFILE


def test_image_asks_itself_whether_it_is_healthy(server: dict[str, Any]) -> None:
    asks = last_command("HEALTHCHECK CMD")
    compile(asks[-1], "healthcheck", "exec")
    [port] = re.findall(r"http://127\.0\.0\.1:(\d+)/healthz", asks[-1])
    assert server["ports"] == [f"{port}:{port}"]
    assert "test" not in server["healthcheck"]  # else compose would ask something else


def test_image_runs_as_a_user() -> None:
    assert re.findall(r"^USER (\w+)$", DOCKERFILE, re.MULTILINE)[-1] not in ("root", "0")


def test_profile_scale_is_a_database_two_replicas_and_a_proxy_in_front() -> None:
    assert set(SCALE) == {"proxy", "replica", "postgres"}
    assert SCALE["replica"]["deploy"]["replicas"] == 2
    assert [name for name, service in SCALE.items() if "ports" in service] == ["proxy"]
    assert set(SCALE["proxy"]["depends_on"]) == {"replica"}
    assert SCALE["replica"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_replicas_ask_for_the_token_and_reach_the_database_by_the_names_it_has(server: dict[str, Any]) -> None:
    replica, database = SCALE["replica"], SCALE["postgres"]["environment"]
    assert replica["environment"]["GRADSIGHT_TOKEN"] == server["environment"]["GRADSIGHT_TOKEN"]
    assert replica["build"] == server["build"]
    arguments = replica["command"]
    url = urlsplit(arguments[arguments.index("--db") + 1])
    assert (url.scheme, url.hostname, url.password) == ("postgresql+psycopg", "postgres", None)
    assert (url.username, url.path) == (database["POSTGRES_USER"], f"/{database['POSTGRES_DB']}")
    assert replica["environment"]["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    assert "postgres" in re.findall(r"whl\)\[(.*)\]", DOCKERFILE)[0].split(",")


def test_compose_needs_nothing_set_but_the_token() -> None:
    """It reads the whole file, whatever profile is asked for: a variable that only one needs must have a default."""
    needed = re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text())
    assert set(needed) == {"GRADSIGHT_TOKEN"}


def test_proxy_hands_live_streams_on_at_once_and_finds_each_replica() -> None:
    [source] = (config["source"] for config in SCALE["proxy"]["configs"])
    written = COMPOSE["configs"][source]["content"]
    assert written.count("{") == written.count("}")
    assert "flush_interval -1" in written
    [(name, port)] = re.findall(r"dynamic a (\w+) (\d+)", written)
    assert name in SCALE
    assert re.findall(r"^EXPOSE (\d+)$", DOCKERFILE, re.MULTILINE) == [port]
    assert SCALE["proxy"]["ports"] == [f"{port}:{port}"]
    assert written.startswith(f":{port} {{")


def test_data_outlives_the_containers() -> None:
    kept = [
        volume.partition(":")[0] for service in COMPOSE["services"].values() for volume in service.get("volumes", [])
    ]
    assert sorted(kept) == sorted(COMPOSE["volumes"])
