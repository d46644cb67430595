"""The commands. What is heavy is imported by the command that needs it, so that `--help` need not wait for FastAPI."""

import os
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from gradsight import transport
from gradsight.errors import ConfigurationError, GradsightError
from gradsight_server.cli import complain
from gradsight_server.errors import GradsightServerError, NothingToReadError

DEFAULT_SERVER = "http://127.0.0.1:8420"
DEFAULT_DEMO_DB = "gradsight-demo.db"

app = typer.Typer(name="gradsight", add_completion=False, rich_markup_mode=None, help="Live gradient monitoring.")
db_app = typer.Typer(help="The database.")
app.add_typer(db_app, name="db")
alerts_app = typer.Typer(help="Alerts, and who is told of them.")
app.add_typer(alerts_app, name="alerts")

Db = Annotated[str | None, typer.Option(help="Database URL or SQLite file.", show_default="sqlite:///gradsight.db")]
Server = Annotated[str, typer.Option(help="Address of the server.", envvar="GRADSIGHT_SERVER")]
LogFormat = Annotated[
    str, typer.Option("--format", metavar="NAME", help="The log's format; auto tells by its content.")
]
Columns = Annotated[
    str | None, typer.Option("--map", metavar="norm=COL,…", help="Which of the log's columns are which.")
]
Token = Annotated[str | None, typer.Option(help="The server's token.", envvar="GRADSIGHT_TOKEN", show_envvar=True)]


def run(arguments: list[str]) -> int:
    """The exit code of a command line: 0 fine, 1 nothing there or it did not work, 2 wrong use."""
    try:
        return app(args=arguments, prog_name="gradsight", standalone_mode=False) or 0
    except TyperException as error:
        return complain(error.format_message(), exit_code=error.exit_code)
    except NothingToReadError as error:
        return complain(str(error), exit_code=1)
    except (GradsightServerError, ConfigurationError) as error:
        return complain(str(error))
    except GradsightError as error:
        return complain(str(error), exit_code=1)


@app.callback(invoke_without_command=True)
def gradsight(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
) -> None:
    if version:
        print(f"gradsight {version_of('gradsight')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes any free one.", show_default="8420")] = None,
    db: Db = None,
    db_sync: Annotated[
        str | None, typer.Option(help="normal, or full to survive a power cut too.", show_default="normal")
    ] = None,
    token: Annotated[str | None, typer.Option(help="Secret that clients and people must show.")] = None,
    insecure_no_auth: Annotated[
        bool | None, typer.Option("--insecure-no-auth", help="Serve other machines without a token.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="Another name this server goes by; may be repeated.")
    ] = None,
) -> None:
    """Take runs in and show them. Environment variables GRADSIGHT_HOST, GRADSIGHT_TOKEN, … stand for the options."""
    from gradsight_server.serve import serve as run_server

    run_server(
        host=host,
        port=port,
        db=db,
        db_sync=db_sync,
        token=token,
        insecure_no_auth=insecure_no_auth,
        allowed_hosts=allowed_host or None,
    )


@app.command()
def sync(
    folder: Annotated[Path | None, typer.Argument(help="The spool.", show_default=".gradsight")] = None,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Send what was recorded while no server was there."""
    folder = folder or spool_folder()
    if not folder.is_dir():
        raise typer.Exit(complain(f"there is no spool {str(folder)!r}.", exit_code=1))
    way = transport.HttpTransport(server.rstrip("/"), token)
    try:
        report = transport.send_spooled(folder, way)
    finally:
        way.close()
    print(told(report, folder) or f"Nothing waits in {folder}.")
    raise typer.Exit(1 if report.num_refused else 0)


def spool_folder() -> Path:
    """Where training processes started in this folder leave what they cannot send."""
    return Path(os.environ.get("GRADSIGHT_SPOOL_DIR") or ".gradsight")


def told(report: transport.Report, folder: Path) -> str:
    """What was sent, in a sentence; empty where there was nothing."""
    parts = []
    if report.num_steps or (report.num_runs and not report.num_refused):
        parts.append(f"sent {report.num_steps} steps of {report.num_runs} run{'s' * (report.num_runs != 1)}")
    if report.num_refused:
        parts.append(f"{report.num_refused} messages were refused by the server and are kept in {folder / 'refused'}")
    if report.num_damaged:
        parts.append(f"{report.num_damaged} damaged stretches could not be read")
    if report.num_busy:
        parts.append(f"left {report.num_busy} to the processes that still write them")
    return f"{folder}: {', '.join(parts)}." if parts else ""


@app.command()
def runs(
    project: Annotated[str | None, typer.Option(help="Only this project's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many at most.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="The server's answer as it is.")] = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """List the runs on a server, newest first."""
    from gradsight_server.listing import list_runs  # late: Rich's tables

    raise typer.Exit(list_runs(server, token, project=project, limit=limit, as_json=as_json))


@app.command()
def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="32 hex digits; `gradsight runs` lists them.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="The server's answer as it is, with the last events.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Show a run: its state, verdict, streams, newest values, and what happened last."""
    from gradsight_server.showing import show_run  # late: Rich's tables

    raise typer.Exit(show_run(run_id, server, token, as_json=as_json))


@app.command()
def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN_ID RUN_ID…", help="Two to eight runs.")],
    stream: Annotated[str | None, typer.Option(help="Of runs that have several.", show_default="main")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON: each diagnosis, and what differs.")] = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Set runs side by side: verdicts, numbers, and where their configuration differs."""
    from gradsight_server.comparing import compare_runs  # late: Rich's tables

    raise typer.Exit(compare_runs(run_ids, server, token, stream=stream, as_json=as_json))


@app.command()
def tail(
    run_id: Annotated[str, typer.Argument(metavar="RUN_ID", help="32 hex digits; `gradsight runs` lists them.")],
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=10_000, help="So many of the newest first.")] = 20,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on until the run ends, or Ctrl-C.")] = True,
    stream: Annotated[str | None, typer.Option(help="Of a run that has several.", show_default="main")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a step.")] = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Follow a run's steps live in the terminal."""
    from gradsight_server.tailing import tail_run  # late: Rich

    code = tail_run(run_id, server, token, stream=stream, lines=lines, follow=follow, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def diagnose(
    targets: Annotated[
        list[str], typer.Argument(metavar="RUN_ID|PATH…", help="Runs on the server, or logs; - is a pipe.")
    ],
    max_norm: Annotated[float | None, typer.Option(help="The threshold, for a log that does not tell it.")] = None,
    stream: Annotated[str | None, typer.Option(help="Of a run that has several.", show_default="main")] = None,
    log_format: LogFormat = "auto",
    columns: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON; an array for several.")] = False,
    fail_on: Annotated[
        str | None, typer.Option(metavar="warning|critical", help="Exit with 1 where something is as bad as that.")
    ] = None,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Say what is wrong with clipping and loss scale, and what to do: of runs, or of any training log."""
    from gradsight_server.diagnosing import diagnose_all  # late: numpy and Rich

    code = diagnose_all(
        targets,
        server=server,
        token=token,
        stream=stream,
        max_norm=max_norm,
        log_format=log_format,
        columns=columns,
        as_json=as_json,
        fail_on=fail_on,
    )
    raise typer.Exit(code)


@app.command()
def export(
    run_id: Annotated[str, typer.Argument(help="The run, by its id.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="A new file, or - for standard output.", show_default="by the run's name"),
    ] = None,
    format: Annotated[
        str | None, typer.Option(metavar="jsonl|csv|parquet", help="What to write.", show_default="by the file's name")
    ] = None,
    stream: Annotated[str | None, typer.Option(help="Only this one.", show_default="all")] = None,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Write a run to a file: jsonl holds all of it, csv and parquet a row for each step. .gz compresses."""
    from gradsight_server.exporting import export_run

    said = export_run(run_id, output, format=format, stream=stream, server=server, token=token)
    if said:
        print(said)


@app.command("import")
def import_logs(
    paths: Annotated[list[str], typer.Argument(metavar="PATH…", help="Logs, folders, patterns; - is a pipe.")],
    log_format: LogFormat = "auto",
    columns: Columns = None,
    max_norm: Annotated[float | None, typer.Option(help="The threshold, for a log that does not tell it.")] = None,
    project: Annotated[str | None, typer.Option(help="Put the runs into this project.")] = None,
    name: Annotated[str | None, typer.Option(help="Call the run so.", show_default="the log's name")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on while the logs grow, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was made, as a JSON array.")] = False,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Make runs of training logs that something else wrote. The same log again changes nothing, a grown one adds."""
    from gradsight_server.importers.format import Options  # late: so are the formats
    from gradsight_server.importers.importing import Wish
    from gradsight_server.importers.mapping import parse_map
    from gradsight_server.importing import import_all

    wish = Wish(Options(parse_map(columns)), max_norm, project, name)
    code = import_all(paths, server=server, token=token, log_format=log_format, wish=wish, watch=watch, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def report(
    target: Annotated[str, typer.Argument(metavar="RUN_ID|PATH", help="A run on the server, or a log (- is stdin).")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default="stdout")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", metavar="html|md|json", help="As the file's name says, else html.")
    ] = None,
    max_norm: Annotated[float | None, typer.Option(help="The threshold, for a log that does not tell it.")] = None,
    log_format: Annotated[
        str, typer.Option(metavar="NAME", help="Of a log: its format; auto tells by its content.")
    ] = "auto",
    columns: Columns = None,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Write a run, or a log, as one file that opens offline and prints well: verdict, charts, findings, tables."""
    from gradsight_server.reporting import write_report  # late: numpy, the importers

    code = write_report(
        target,
        output=output,
        kind=kind,
        max_norm=max_norm,
        log_format=log_format,
        columns=columns,
        server=server,
        token=token,
    )
    raise typer.Exit(code)


@app.command()
def demo(
    headless: Annotated[bool, typer.Option("--headless", help="Open no browser, and end with the trainings.")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each training.")] = None,
    db: Annotated[str, typer.Option(help="Database URL or SQLite file.")] = DEFAULT_DEMO_DB,
) -> None:
    """Watch three small trainings, one healthy, two not, in the browser."""
    from gradsight_server import demo_host  # late: it brings the server and starts PyTorch

    raise typer.Exit(demo_host.run_demo(num_steps=steps or demo_host.DEFAULT_STEPS, db=db, headless=headless))


@alerts_app.callback()
def alerts() -> None:
    """So that `test` stays a word of its own while it is the only command."""


@alerts_app.command("test")
def alerts_test(
    name: Annotated[str | None, typer.Argument(help="A notification target.", show_default="all")] = None,
    server: Server = DEFAULT_SERVER,
    token: Token = None,
) -> None:
    """Have the server send a test message to its notification targets."""
    from gradsight_server.alerts_cli import test_targets  # late: httpx

    raise typer.Exit(test_targets(server, token, name=name))


@db_app.command()
def upgrade(db: Db = None) -> None:
    """Bring the database to this version; `serve` does so by itself."""
    from gradsight_server.serve import open_or_explain
    from gradsight_server.settings import load_settings

    settings = load_settings(db=db)
    open_or_explain(settings).close()
    print(f"{settings.shown_db} is up to date.")


@db_app.command()
def compact(
    db: Db = None,
    keep_raw_days: Annotated[float | None, typer.Option(help="Remove raw steps older than so many days.")] = None,
    keep_raw_steps: Annotated[
        int | None, typer.Option(help="Keep so many of the newest raw steps of a stream.")
    ] = None,
) -> None:
    """Remove raw steps that need not be kept, and give their room back. Rollups and events stay for good."""
    from gradsight_server.maintenance import compact as compact_database

    print(compact_database(db=db, keep_raw_days=keep_raw_days, keep_raw_steps=keep_raw_steps))


@db_app.command()
def distribute(db: Db = None) -> None:
    """Spread runs over the nodes of a PostgreSQL with the Citus extension. Stop the servers first; may be repeated."""
    from gradsight_server.maintenance import distribute as distribute_database

    distribute_database(db=db)


@db_app.command()
def backup(target: Annotated[Path, typer.Argument(help="A file that is not there yet.")], db: Db = None) -> None:
    """Copy an SQLite database as it is at this moment; a server may write to it meanwhile."""
    from gradsight_server.settings import load_settings
    from gradsight_server.store.backup import back_up

    settings = load_settings(db=db)
    back_up(settings.db_url, target)
    print(f"{settings.shown_db} is copied to {target} ({target.stat().st_size / 1e6:.1f} MB).")
