"""What the compose file and the image promise, as far as reading them tells: no Docker engine is needed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture
def server() -> dict[str, Any]:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    [service] = (service for service in services.values() if "profiles" not in service)
    return service


def last_command(instruction: str) -> list[str]:
    """The words of the Dockerfile's last instruction of a kind, given in its JSON form."""
    found: list[str] = json.loads(re.findall(rf"^{instruction} (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    return found


def test_compose_asks_for_a_token(server: dict[str, Any]) -> None:
    assert re.fullmatch(r"\$\{GRADSIGHT_TOKEN:\?.+\}", server["environment"]["GRADSIGHT_TOKEN"])


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
