"""How a report looks, on a screen and on paper: the page's colours by day."""

STYLE = """
:root { color-scheme: light; --text: #1b2330; --muted: #667085; --line: #e3e6eb; --surface: #fff; --ground: #f7f8fa;
  --ok: #1a7f4b; --info: #3456d1; --warning: #b25e09; --critical: #c0272d; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 16px 64px; }
h1 { margin: 0; font-size: 26px; overflow-wrap: anywhere; } h2 { margin: 32px 0 8px; font-size: 19px; }
h3 { margin: 0; font-size: 15px; } p { margin: 4px 0; }
.muted { color: var(--muted); font-size: 13px; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 8px 32px; margin: 16px 0; }
.facts dt { color: var(--muted); font-size: 12px; } .facts dd { margin: 0; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(240px, 100%), 1fr));
  gap: 16px; margin: 16px 0; }
.card, .finding, figure, table { background: var(--surface); border: 1px solid var(--line); border-radius: 12px; }
.card, .finding { padding: 16px; } .card h3 { color: var(--muted); font-weight: 500; }
pre { margin: 8px 0; padding: 8px 16px; background: var(--ground); border-radius: 8px; overflow-x: auto; }
.word { font-size: 21px; font-weight: 600; } .advice { white-space: pre-wrap; overflow-wrap: anywhere; }
.severity { margin-left: 8px; padding: 1px 8px; border: 1px solid currentColor; border-radius: 8px; font-size: 12px;
  font-weight: 500; vertical-align: middle; } h3 .severity { margin: 0 4px 0 0; }
.ok .severity { color: var(--ok); } .info .severity { color: var(--info); }
.warning .severity { color: var(--warning); } .critical .severity { color: var(--critical); }
.findings { display: grid; grid-template-columns: minmax(0, 1fr); gap: 8px; margin: 16px 0; }
figure { margin: 16px 0; padding: 16px; min-width: 0; overflow: hidden; }
figcaption { font-weight: 600; margin-bottom: 4px; }
.scroll { overflow-x: auto; margin: 16px 0; }
table { border-collapse: separate; border-spacing: 0; width: 100%; font-size: 14px; }
caption { text-align: left; font-weight: 600; padding: 0 0 8px; }
th, td { padding: 6px 16px; text-align: left; vertical-align: top; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
thead th { border-top: 0; color: var(--muted); font-weight: 500; }
thead:has(tr:empty) + tbody tr:first-child td { border-top: 0; }
@media print { body { background: #fff; font-size: 11pt; } main { max-width: none; padding: 0; }
  .card, .finding, figure, tr { break-inside: avoid; } .modebar { display: none; } }
"""
