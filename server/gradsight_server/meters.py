"""What /metrics tells of this process, in Prometheus' form."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class Meters:
    """The few counts worth watching; a registry of its own, so that two applications in one process do not clash."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "gradsight_requests", "Requests answered.", ["method", "endpoint", "status"], registry=self.registry
        )
        self.ingested_steps = Counter("gradsight_ingested_steps", "Steps taken in.", registry=self.registry)
        self.sealed_steps = Counter(
            "gradsight_sealed_steps",
            "Steps not taken in: sent again, or too late, where retention has removed the raw ones.",
            registry=self.registry,
        )
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

    def watch_alerts(self, num_open: Callable[[], Mapping[str, int]]) -> None:
        """Count open alerts by severity whenever somebody asks; over all runs, so each replica says the same."""
        self.registry.register(_OpenAlerts(num_open))

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _OpenAlerts(Collector):
    def __init__(self, num_open: Callable[[], Mapping[str, int]]) -> None:
        self._num_open = num_open

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            counts = self._num_open()
        except Exception:  # a database out of reach is when the other figures are wanted most
            return
        family = self._family()
        for severity, num in counts.items():
            family.add_metric([severity], num)
        yield family

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily("gradsight_open_alerts", "Alerts that nobody has seen to yet.", labels=["severity"])
