/** Shapes the page shares: REST answers, live messages, figures, and the little of Plotly that charts.js touches. */

type RunState = "running" | "stalled" | "silent" | "finished" | "failed";

interface LastValues {
  grad_norm_before_clip?: number | null;
  max_norm?: number | null;
  clip_coef?: number | null;
  loss?: number | null;
  loss_scale?: number | null;
  lr?: number | null;
  /** Which of the nulls were recorded as NaN or infinite. */
  nonfinite?: Record<string, "NaN" | "Infinity" | "-Infinity">;
}

interface StepCounts {
  num_steps: number;
  num_applied: number;
  num_skipped: number;
  num_clipped: number;
  num_nonfinite: number;
  last_step: number | null;
  last: LastValues;
}

type Severity = "ok" | "info" | "warning" | "critical";
type ClippingVerdict = "off" | "unknown" | "inactive" | "healthy" | "firm" | "too_tight" | "too_loose";
type ScalingVerdict =
  | "not_used" | "unknown" | "static" | "warming_up" | "healthy" | "thrashing" | "collapsing" | "collapsed" | "model_nan";

/** A run's verdicts in brief, as lists and live ticks carry them; null before there is one. */
interface VerdictSummary {
  /** Of several streams, that of the one that is worst off. */
  clipping: { verdict: ClippingVerdict; severity: Severity; stream: string };
  loss_scaling: { verdict: ScalingVerdict; severity: Severity; stream: string };
  nonfinite: { num_steps: number; severity: Severity };
  worst?: { code: string; severity: Severity; stream: string } | null;
}

interface RunSummary extends StepCounts {
  id: string;
  project: string;
  name: string;
  tags: string[];
  status: "running" | "finished" | "failed";
  state: RunState;
  started_at_s: number;
  last_seen_s: number;
  archived: boolean;
  total_steps: number | null;
  world_size: number | null;
  streams: string[];
  /** Of `main`, or the first stream, over all attempts. */
  of_stream: { num_steps: number; num_clipped: number };
  steps_per_s: number | null;
  verdict: VerdictSummary | null;
  severity: Severity | null;
}

interface StreamRecord {
  optimizer?: { class: string; lr?: number | null; betas?: number[] | null; momentum?: number | null };
  policy?: string | null;
  precision?: string;
  scaler?: string | null;
  num_parameters?: number;
  allow_control?: boolean;
}

interface Attempt {
  attempt_id: string;
  number: number;
  started_at_s: number;
  dropped: Record<string, number>;
}

interface RunDetail extends RunSummary {
  config: Record<string, unknown>;
  frameworks: Record<string, string>;
  notes: string;
  streams_detail: Record<string, StepCounts & { record: StreamRecord }>;
  attempts: Attempt[];
  position: number;
}

/** A whole run in at most 64 points. */
interface Sparkline {
  step: number[];
  norm: (number | null)[];
  max_norm: (number | null)[];
  num_nonfinite: number[];
  /** Of the steps counted of the stream, those that a later attempt has taken the place of. */
  num_replaced?: number;
  num_replaced_clipped?: number;
}

/** A run in a list; live changes come without the sparkline. */
interface ListedRun extends RunSummary {
  sparkline?: Sparkline | null;
}

interface RunListing {
  items: ListedRun[];
  next_cursor: string | null;
  num_runs: number | null;
}

interface ColumnSeries {
  min: (number | null)[];
  max: (number | null)[];
  mean: (number | null)[];
  num_nonfinite: number[];
}

/** A run's series among others of the same buckets. */
interface RunSeries {
  run_id: string;
  stream: string;
  bucket_steps: number;
  step: number[];
  last_step: number[];
  wall_time_s: (number | null)[];
  columns: Record<string, ColumnSeries>;
  num_skipped: number[];
  num_clipped: number[];
}

interface ServerAnswer {
  version: string;
  started_at_s: number;
  now_s: number;
  needs_token: boolean;
  is_leader: boolean;
  num_viewers: number;
  num_waiting: number;
  database: { engine: string; url: string; num_bytes: number; num_runs: number; num_archived: number; num_steps: number };
  retention: { keep_raw_days: number | null; keep_raw_steps: number | null };
}

// The diagnosis, its what-if, and the run's events.

interface Finding {
  code: string;
  severity: Severity;
  title: string;
  evidence: Record<string, number>;
  advice: string;
  first_step: number | null;
  last_step: number | null;
}

interface Diagnosis {
  range: { first_step: number | null; last_step: number | null; num_steps: number; num_finite: number };
  clipping: {
    verdict: ClippingVerdict;
    severity: Severity;
    clip_fraction: number | null;
    median_clip_coef: number | null;
    norm: { p50: number | null; p90: number | null; p99: number | null; max: number | null; last: number | null };
    recommended_max_norm: { low: number; high: number; basis: string } | null;
    advice: string;
  };
  loss_scaling: {
    verdict: ScalingVerdict;
    severity: Severity;
    num_skipped: number;
    skip_rate: number | null;
    last_scale: number | null;
    min_scale: number | null;
    advice: string;
  };
  nonfinite: {
    num_steps: number;
    bursts: { first_step: number; last_step: number; num_steps: number; first_layer: string | null }[];
  };
  layers: { dominant: string[]; vanishing: string[]; exploding: string[]; dead: string[] };
  findings: Finding[];
}

interface WhatIf {
  policy: string;
  num_steps: number;
  num_finite: number;
  num_clipped: number;
  clip_fraction: number | null;
  mean_clip_coef: number | null;
  num_spikes: number;
  num_spikes_clipped: number;
  notes: string[];
}

interface RunEvent {
  id: string;
  kind: string;
  stream: string;
  attempt: number;
  step: number | null;
  message: string | null;
  wall_time_s: number;
}

// Figures, as the server sends them.

type ChartName = "norm" | "clip_fraction" | "clip_coef" | "loss" | "loss_scale" | "update_ratio" | "layers";
/** A chart of the run, the answer about all metrics, one metric or one layer by its name. */
type FigureName = ChartName | "metrics" | `metric:${string}` | `layer:${string}`;
type Role =
  | "series" | "band_low" | "band_high" | "threshold" | "clipped" | "spike" | "skipped" | "nonfinite" | "lr" | "headroom"
  | "border" | "ghost" | "zero" | "heat" | "dominant" | "norms" | "below" | "above" | "recommended";
type EncodedArray = { dtype: string; bdata: string; shape?: string | number };
type AnyArray = EncodedArray | (number | string | null)[];

interface LiveRule {
  y?: string | null;
  top?: boolean;
  where?: "clipped" | "skipped" | "nonfinite" | null;
  layers?: boolean;
  /** Which of the layers, for a chart of one. */
  layer?: number;
  /** A share of so many of the newest steps. */
  window?: number;
  /** Recorded on some steps only: those without a value are passed over. */
  sparse?: boolean;
}

interface EncodedTrace {
  type: string;
  role: Role;
  key: string;
  mode?: string;
  x: AnyArray;
  y: AnyArray;
  z?: AnyArray | AnyArray[];
  zmin?: number;
  yaxis?: string;
  fill?: string;
  line?: { shape?: string };
  live?: LiveRule | null;
  /** Of a ghost: which older attempt. */
  attempt?: number;
  /** Of the user's metrics: which, and in buckets of how many steps. */
  metric?: string;
  bucket_steps?: number;
}

/** The steps at which an attempt is shown. */
interface Launch {
  attempt: number;
  first_step: number;
  last_step: number;
  is_shown: boolean;
}

interface AxisShape {
  type?: string;
  range?: [number, number];
  side?: string;
  overlaying?: string;
}

interface EncodedFigure {
  name: ChartName | "metrics" | "layer" | "histogram";
  stream: string;
  attempt: number | null;
  position: number;
  bucket_steps: number;
  first_step: number | null;
  last_step: number | null;
  data: EncodedTrace[];
  layout: { yaxis?: AxisShape; yaxis2?: AxisShape };
  /** Of the chart of one layer. */
  layer?: string | null;
  /** Of the histogram. */
  num_norms?: number | null;
  /** Of the norms and of the loss. */
  launches?: Launch[];
}

// Figures, decoded: plain numbers, a gap is NaN.

interface Trace {
  role: Role;
  key: string;
  x: number[];
  y: number[];
  axis: "y" | "y2";
  shape: "linear" | "hv";
  live: LiveRule | null;
  attempt: number | null;
  /** Of a share that live steps move: what it was before the first of them, and the newest of them. */
  slide?: { before: number; recent: number[] };
}

interface HeatMap {
  x: number[];
  layers: string[];
  /** One row per layer, one value per bucket: log10 of the largest norm, NaN without a gradient. */
  z: number[][];
  bucket_steps: number;
  /** Where a norm of zero stands among the colours. */
  floor: number;
}

interface Figure {
  name: FigureName;
  position: number;
  bucket_steps: number;
  first_step: number | null;
  last_step: number | null;
  log: boolean;
  range: [number, number] | null;
  traces: Trace[];
  heat: HeatMap | null;
  launches: Launch[];
  num_appended: number;
  /** Steps of live ticks whose layers the tick did not bring. */
  num_missed: number;
}

/** How the charts draw what they show. */
interface Drawing {
  /** Null draws norms on a log axis and losses on a linear one. */
  scale: "log" | "linear" | null;
  /** Points over which lines are smoothed; 0 for none. What is smallest and largest stays in sight. */
  smoothing: number;
}

/** One step with everything that is known of it. */
type StepDetail = {
  step: number;
  attempt: number;
  wall_time_s: number;
  nonfinite: Record<string, string>;
  layers: { names: string[]; norm: number | null; nonfinite: string | null }[];
} & Record<string, number | string | boolean | null>;

interface Series {
  bucket_steps: number;
  step: number[];
  last_step: number[];
  columns: Record<string, { min: (number | null)[]; max: (number | null)[]; mean: (number | null)[]; num_nonfinite: number[] }>;
  num_skipped: number[];
  num_clipped: number[];
}

type AlertKind =
  | "dead_run" | "nonfinite_burst" | "loss_nonfinite" | "scale_below_one" | "skip_streak" | "scale_falling" | "skip_rate"
  | "norm_spike" | "over_clipping" | "silent_run" | "telemetry_loss";
type AlertSeverity = "info" | "warning" | "critical";

interface RunAlert {
  /** Counts within the run. */
  id: number;
  run_id: string;
  run_name: string;
  project: string;
  kind: AlertKind;
  severity: AlertSeverity;
  state: "open" | "acknowledged" | "resolved";
  first_step: number | null;
  last_step: number | null;
  num_repeats: number;
  value: number | null;
  layer: string | null;
  title: string;
  evidence: Record<string, number | null>;
  folded: AlertKind[];
  folded_into: number | null;
  stream: string | null;
  opened_at_s: number;
  updated_at_s: number;
  acknowledged_at_s: number | null;
  acknowledged_by: string | null;
  resolved_at_s: number | null;
  /** What became of it, in a live message. */
  change?: "opened" | "reminded" | "repeated" | "acknowledged" | "resolved";
}

interface RuleNumbers {
  enabled: boolean | null;
  severity: AlertSeverity | null;
  threshold: number | null;
  window: number | null;
  sustain: number | null;
  least_s: number | null;
  cool_down_s: number | null;
}
type RuleField = "threshold" | "window" | "sustain" | "least_s" | "cool_down_s";

interface AlertRule extends RuleNumbers {
  kind: AlertKind;
  origin: "default" | "global" | "project" | "run";
  change: RuleNumbers;
  default: RuleNumbers;
  limits: Partial<Record<RuleField, { least: number; most: number; is_whole: boolean; unit: string }>>;
  warnings: string[];
}

interface AlertRules {
  scope: "global" | "project" | "run";
  project: string | null;
  run_id: string | null;
  items: AlertRule[];
}

type RuleChange = { kind: AlertKind } & Partial<RuleNumbers>;

interface RulePreview {
  kind: AlertKind;
  num_fired: number;
  num_repeats: number;
  runs: { run_id: string; run_name: string; project: string; num_fired: number; first_step: number | null }[];
  covered: { since_s: number; until_s: number; num_runs: number; num_steps: number; is_complete: boolean };
  warnings: string[];
}

/** One stream of one run in a log. */
interface LogPart {
  name: string;
  run: number;
  stream: string;
  num_attempts: number;
  num_steps: number;
  run_id: string | null;
  url: string | null;
  sparkline: Sparkline;
  diagnosis: Diagnosis;
}

interface ImportAnswer {
  format: { name: string; title: string };
  notes: string[];
  kept: boolean;
  runs: LogPart[];
}

interface NotificationTarget {
  name: string;
  service: string;
  project: string;
  severity: AlertSeverity;
  state: "ok" | "failing" | "hanging";
  num_waiting: number;
  num_sent: number;
  num_given_up: number;
  failing_since_s: number | null;
  num_failures: number;
  next_try_at_s: number | null;
  last_sent_at_s: number | null;
  last_error: string | null;
}

// The live stream.

interface Tick {
  run_id: string;
  stream: string;
  attempt: number;
  steps: { step: number[] } & Record<string, (number | boolean | null)[] | undefined>;
  layers: { layers_id: string; step: number; norms: string } | null;
  summary: RunSummary;
}

type LiveEvent =
  | { event: "tick"; position: number; run_id: string; payload: Tick }
  | { event: "run"; position: number; run_id: string; payload: RunSummary }
  | { event: "deleted"; position: number; run_id: string }
  | { event: "alert"; position: number; run_id: string; payload: RunAlert }
  | { event: "stale"; position: number; run_id: string | null };

/** What a tab wants to hear of, and the position each run's figures were read at. */
interface Wish {
  runs: Record<string, number | null>;
}

type ToHub = ({ kind: "want" } & Wish) | { kind: "bye" };

type FromHub =
  | { kind: "state"; connected: boolean; since_ms: number }
  /** From `position` on these runs' ticks arrive without a gap. */
  | { kind: "covered"; runs: string[]; position: number }
  | { kind: "hello" }
  | ({ kind: "event" } & LiveEvent);

// The view: which steps the charts show.

interface View {
  /** Newest steps to show; null shows all. Ignored where first and last are given. */
  width: number | null;
  /** The right edge moves with the newest step. */
  follow: boolean;
  first: number | null;
  last: number | null;
}

// Plotly, as far as charts.js needs it.

interface PlotlyLike {
  react(element: HTMLElement, data: object[], layout: object, config: object): Promise<unknown>;
  purge(element: HTMLElement): void;
  toImage(figure: object, options: object): Promise<string>;
}

interface Window {
  Plotly?: PlotlyLike;
}

// The page's own elements, so that making one by its tag gives its type.

interface HTMLElementTagNameMap {
  "alert-bell": import("./components/alert-bell.js").AlertBell;
  "alert-row": import("./components/alert-row.js").AlertRow;
  "alert-rule": import("./components/alert-rule.js").AlertRuleRow;
  "alert-rules": import("./components/alert-rules.js").AlertRulesCard;
  "alerts-page": import("./components/alerts-page.js").AlertsPage;
  "chart-menu": import("./components/chart-menu.js").ChartMenu;
  "chart-overlay": import("./components/chart-overlay.js").ChartOverlay;
  "chart-row": import("./components/chart-row.js").ChartRow;
  "chart-stack": import("./components/chart-stack.js").ChartStack;
  "code-snippet": import("./components/code-snippet.js").CodeSnippet;
  "compare-chart": import("./components/compare-chart.js").CompareChart;
  "compare-page": import("./components/compare-page.js").ComparePage;
  "compare-runs": import("./components/compare-runs.js").CompareRuns;
  "compare-settings": import("./components/compare-settings.js").CompareSettings;
  "connection-status": import("./components/connection-status.js").ConnectionStatus;
  "control-offer": import("./components/control-offer.js").ControlOffer;
  "delete-dialog": import("./components/delete-dialog.js").DeleteDialog;
  "drawing-picker": import("./components/drawing-picker.js").DrawingPicker;
  "event-lane": import("./components/event-lane.js").EventLane;
  "finding-list": import("./components/finding-list.js").FindingList;
  "finding-row": import("./components/finding-row.js").FindingRow;
  "finding-why": import("./components/finding-why.js").FindingWhy;
  "first-run": import("./components/first-run.js").FirstRun;
  "help-dialog": import("./components/help-dialog.js").HelpDialog;
  "language-picker": import("./components/language-picker.js").LanguagePicker;
  "layer-picker": import("./components/layer-picker.js").LayerPicker;
  "log-dialog": import("./components/log-dialog.js").LogDialog;
  "log-drop": import("./components/log-drop.js").LogDrop;
  "log-part": import("./components/log-part.js").LogPartView;
  "mark-legend": import("./components/mark-legend.js").MarkLegend;
  "norm-histogram": import("./components/norm-histogram.js").NormHistogram;
  "notification-targets": import("./components/notification-targets.js").NotificationTargets;
  "notify-switch": import("./components/notify-switch.js").NotifySwitch;
  "range-picker": import("./components/range-picker.js").RangePicker;
  "run-facts": import("./components/run-facts.js").RunFacts;
  "run-filters": import("./components/run-filters.js").RunFilters;
  "run-head": import("./components/run-head.js").RunHead;
  "run-list": import("./components/run-list.js").RunList;
  "run-page": import("./components/run-page.js").RunPage;
  "run-row": import("./components/run-row.js").RunRow;
  "run-selection": import("./components/run-selection.js").RunSelection;
  "run-setup": import("./components/run-setup.js").RunSetup;
  "run-state": import("./components/run-state.js").RunStateMark;
  "run-table": import("./components/run-table.js").RunTable;
  "run-timeline": import("./components/run-timeline.js").RunTimeline;
  "run-verdicts": import("./components/run-verdicts.js").RunVerdicts;
  "server-state": import("./components/server-state.js").ServerState;
  "settings-page": import("./components/settings-page.js").SettingsPage;
  "spark-line": import("./components/spark-line.js").SparkLine;
  "step-axis": import("./components/step-axis.js").StepAxis;
  "step-panel": import("./components/step-panel.js").StepPanel;
  "table-dialog": import("./components/table-dialog.js").TableDialog;
  "tags-dialog": import("./components/tags-dialog.js").TagsDialog;
  "theme-picker": import("./components/theme-picker.js").ThemePicker;
  "threshold-line": import("./components/threshold-line.js").ThresholdLine;
  "time-ago": import("./components/time-ago.js").TimeAgo;
  "toast-stack": import("./components/toast-stack.js").ToastStack;
  "top-bar": import("./components/top-bar.js").TopBar;
  "verdict-badge": import("./components/verdict-badge.js").VerdictBadge;
  "verdict-card": import("./components/verdict-card.js").VerdictCard;
  "what-if-panel": import("./components/what-if-panel.js").WhatIfPanel;
}
