"""The application: `create_app(settings)` puts the rooms together and opens and closes what runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from gradsight_server.alerts.courier import Courier
from gradsight_server.alerts.notify import targets_of
from gradsight_server.alerts.store import num_open
from gradsight_server.api import (
    alerts,
    compare,
    control,
    diagnosis,
    distribution,
    docs,
    export,
    figures,
    health,
    imports,
    ingest,
    live,
    login,
    notifications,
    pages,
    runs,
    series,
    server,
)
from gradsight_server.api.answers import HANDLED, Envelope, on_error
from gradsight_server.api.figure_cache import FigureCache
from gradsight_server.api.services import no_nul
from gradsight_server.auth import Door, Token
from gradsight_server.background import Background, chores, prompt_chores
from gradsight_server.hosts import Hosts
from gradsight_server.judging import VerdictKeeper
from gradsight_server.live import LiveHub
from gradsight_server.meters import Meters
from gradsight_server.schemas import ErrorAnswer
from gradsight_server.settings import Settings, load_settings
from gradsight_server.store.database import Database

API = "/api/v1"


def create_app(settings: Settings | None = None, database: Database | None = None) -> FastAPI:
    """The server's application.

    Args:
        settings: The environment's where left out.
        database: An open one, which the application then closes; opened from the settings where left out.

    Raises:
        SettingsError: the address can be reached from other machines, and there is no token.
    """
    settings = settings or load_settings()
    settings.check_exposure()
    app = FastAPI(
        title="Gradsight",
        version=_version(),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        responses={"4XX": {"model": ErrorAnswer, "description": "Refused: what is wrong, and what would be right."}},
    )
    app.state.settings = settings
    app.state.database = database
    app.state.token = Token(settings.secret) if settings.secret else None
    app.state.targets = targets_of(settings.notifications)
    app.state.meters = Meters()
    app.state.page_files = pages.PageFiles(docs.docs_files())
    for room in (
        runs,
        ingest,
        imports,
        series,
        compare,
        distribution,
        figures,
        diagnosis,
        export,
        live,
        server,
        alerts,
        notifications,
        control,
    ):
        app.include_router(room.router, prefix=API, dependencies=[Depends(no_nul)])
    for room in (health, login, docs, pages):
        app.include_router(room.router)
    for kind in HANDLED:
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(HTTPStatus.NOT_FOUND, pages.on_not_found)
    # The one added last is outermost.
    app.add_middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5)
    app.add_middleware(Door, hosts=Hosts(settings.host, settings.allowed_hosts), token=app.state.token)
    app.add_middleware(Envelope, meters=app.state.meters)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    if app.state.database is None:
        app.state.database = await asyncio.to_thread(open_database, app.state.settings)
    database: Database = app.state.database
    app.state.started_at_s = time.time()
    app.state.live = hub = LiveHub(database)
    app.state.figure_cache = FigureCache()
    app.state.diagnosis_cache = FigureCache()
    app.state.verdicts = verdicts = VerdictKeeper(database)
    settings: Settings = app.state.settings
    app.state.courier = courier = Courier(database, app.state.targets, public_url=settings.address)
    prompt = prompt_chores(database, courier)
    app.state.background = background = Background(database, chores(database, settings), prompt)
    try:
        await hub.start()
        await asyncio.to_thread(verdicts.start)
        await asyncio.to_thread(courier.start)
        background.start()
        app.state.meters.watch(
            queue_depth=lambda: database.queue_depth,
            subscribers=lambda: hub.num_subscribers,
            leads=lambda: background.is_leader,
        )
        app.state.meters.watch_alerts(lambda: _num_open(database))
        warm_up = asyncio.create_task(asyncio.to_thread(app.state.page_files.warm_up))
        yield
        await warm_up
    finally:
        await hub.close()
        await asyncio.to_thread(verdicts.close)
        await asyncio.to_thread(background.close)
        await asyncio.to_thread(courier.close)
        await asyncio.to_thread(database.close)


def _num_open(database: Database) -> dict[str, int]:
    with database.reading() as conn:
        return num_open(conn)


def open_database(settings: Settings) -> Database:
    """The database the settings name, with this version's tables.

    Raises:
        SettingsError: it cannot be opened.
        NewerDatabaseError: a newer Gradsight has been at it.
    """
    database = Database(settings.db_url, sync=settings.db_sync)
    try:
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database


def _version() -> str:
    try:
        return version("gradsight")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"
