/** The SharedWorker: one hub for all tabs of this browser. */

import { Hub, listenTo } from "./stream.js";

const hub = new Hub();

addEventListener("connect", (event) => {
  const [port] = /** @type {MessageEvent} */ (event).ports;
  const receive = listenTo(hub, (message) => port.postMessage(message));
  port.addEventListener("message", (sent) => receive(sent.data));
  port.start();
});
