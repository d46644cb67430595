/** What every page says. */

export default {
  "app.name": "Gradsight",

  "nowhere.title": "No page here",
  "nowhere.words": "The address {path} is none of Gradsight’s.",
  "nowhere.link": "All runs",

  "connection.connecting": "Connecting…",
  "connection.live": "Live",
  "connection.lost": "Disconnected, trying again.",
  "connection.since": "Last contact {ago}.",

  "state.running": "running",
  "state.stalled": "stalled",
  "state.silent": "silent",
  "state.finished": "finished",
  "state.failed": "failed",
  "state.running.why": "Steps are coming in",
  "state.stalled.why": "The process is alive but has not made a step for a while",
  "state.silent.why": "Nothing heard from the training process for 30 s or more",
  "state.finished.why": "The training said it is done",
  "state.failed.why": "The training said it failed",

  "copy": "Copy",
  "copy.done": "Copied",

  "retry": "Try again",
};
