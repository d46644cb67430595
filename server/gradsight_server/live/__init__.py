"""Live streams: one tailer reads what was committed and hands it to every open stream."""

from gradsight_server.live.hub import LiveHub
from gradsight_server.live.subscriber import Subscriber

__all__ = ["LiveHub", "Subscriber"]
