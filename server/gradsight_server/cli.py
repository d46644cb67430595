"""`gradsight …`: the way in. Importable in a base install, where it says what the commands need."""

import sys
from importlib import import_module


def main() -> None:
    """Runs the command named by the arguments, and ends the process with its exit code."""
    try:
        commands = import_module("gradsight_server.commands")  # late: a base install has no Typer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("gradsight", "gradsight_server"):
            raise
        sys.exit(complain(f"the commands need more than a base install: pip install 'gradsight[server]' ({error})."))
    sys.exit(commands.run(sys.argv[1:]))


def complain(problem: str, *, exit_code: int = 2) -> int:
    """Says on stderr, in one line, what is wrong; the exit code."""
    print(f"gradsight: {' '.join(problem.split())}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    main()
