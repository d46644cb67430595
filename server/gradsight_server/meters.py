"""What /metrics tells of this process, in Prometheus' form."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest


class Meters:
    """The few counts worth watching; a registry of its own, so that two applications in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "gradsight_requests", "Requests answered.", ["method", "endpoint", "status"], registry=self.registry
        )
        self.ingested_steps = Counter("gradsight_ingested_steps", "Steps taken in.", registry=self.registry)
        self.ingested_bytes = Counter(
            "gradsight_ingested_bytes", "Bytes of batches taken in, as sent.", registry=self.registry
        )
        self._queue_depth = Gauge(
            "gradsight_writer_queue_depth", "Works that wait for the writer.", registry=self.registry
        )
        self._subscribers = Gauge("gradsight_live_subscribers", "Open live streams.", registry=self.registry)
        self._leads = Gauge(
            "gradsight_leader", "1 while this server does what only one of several may do.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)

    def watch(
        self, *, queue_depth: Callable[[], float], subscribers: Callable[[], float], leads: Callable[[], float]
    ) -> None:
        """Read these whenever somebody asks."""
        self._queue_depth.set_function(queue_depth)
        self._subscribers.set_function(subscribers)
        self._leads.set_function(leads)

    def text(self) -> bytes:
        return generate_latest(self.registry)
