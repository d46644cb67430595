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

  "page.failed": "This part of the page could not be loaded.",
  "error.no.answer": "The server does not answer.",
  "error.status": "The server answered {status}.",

  "dialog.close": "Close",
  "dialog.cancel": "Cancel",

  "toast.label": "Messages",
  "toast.close": "Close this message",

  "nav.label": "Pages",
  "nav.runs": "Runs",
  "nav.alerts": "Alerts",
  "nav.settings": "Settings",
  "nav.help": "Keys",
  "nav.skip": "Skip to content",

  "help.title": "Keys",
  "help.everywhere": "Everywhere",
  "help.runs": "In the list of runs",
  "help.run": "In a run’s charts",
  "help.help": "This help",
  "help.go.runs": "Go to the runs",
  "help.go.alerts": "Go to the alerts",
  "help.go.settings": "Go to the settings",
  "help.search": "Search",
  "help.next": "Next run",
  "help.previous": "Previous run",
  "help.open": "Open the run",
  "help.pick": "Select it, or not",
  "help.unpick": "Clear the selection",
  "help.cross": "Move the cross-hair",
  "help.zoom": "Zoom in and out",
  "help.all": "Show all steps",
  "help.hide": "Hide the cross-hair",

  "time.now": "now",
  "time.ago": "{time} ago",
  "time.s": "{s} s",
  "time.min": "{min} min",
  "time.h": "{h} h",
  "time.d": "{d} d",
  "time.h.min": "{h} h {min} min",
  "time.d.h": "{d} d {h} h",
  "rate.fast": "{rate} steps/s",
  "rate.slow": "{time} s/step",

  "copy": "Copy",
  "copy.done": "Copied",

  "retry": "Try again",
};
