/** The settings: this browser's, the server's. */

export default {
  "settings.title": "Settings",
  "settings.browser": "In this browser",
  "settings.theme": "Theme",
  "settings.language": "Language",

  "theme.label": "Theme",
  "theme.system": "System",
  "theme.light": "Light",
  "theme.dark": "Dark",

  "language.label": "Language",
  "language.system": "As the browser has it",

  "server.title": "Server",
  "server.error": "The server’s state could not be read.",
  "server.version": "Version",
  "server.up": "Running for",
  "server.viewers": "Live viewers",
  "server.waiting": "Waiting writes",
  "server.access": "Access",
  "server.access.token": "by token",
  "server.access.open": "open to all who reach it",
  "server.leader": "Chores",
  "server.leader.here": "done by this server",
  "server.leader.elsewhere": "done by another server on the same database",

  "storage.title": "Storage",
  "storage.database": "Database",
  "storage.size": "Size on disk",
  "storage.runs": "Runs",
  "storage.archived": "{count} of them archived",
  "storage.steps": "Steps",
  "storage.per.step": "Per step",
  "storage.retention": "Raw steps",
  "storage.keep.all": "all kept",
  "storage.keep.days": "kept for {days} days",
  "storage.keep.steps": "the newest {steps} of each stream kept",
  "storage.rollups": "Older ones stay in the charts, as rollups.",
};
