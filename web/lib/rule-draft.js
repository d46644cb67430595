/** Alert rules while somebody changes them: what the scope will change of each; pure. */

/** @type {RuleField[]} as a person reads them */
export const FIELDS = ["threshold", "window", "sustain", "least_s", "cool_down_s"];
/** @type {(keyof RuleNumbers)[]} */
const ALL = ["enabled", "severity", ...FIELDS];

/** @typedef {Partial<RuleNumbers>} Draft */

/** What the scope changes already. @param {AlertRule} rule @returns {Draft} */
export function draftOf({ change }) {
  return Object.fromEntries(ALL.flatMap((name) => (change[name] === null ? [] : [[name, change[name]]])));
}

/** How the rule would be. @param {AlertRule} rule @param {Draft} draft @returns {RuleNumbers} */
export function drafted(rule, draft) {
  const inherited = (/** @type {keyof RuleNumbers} */ name) => (rule.change[name] === null ? rule[name] : rule.default[name]);
  return /** @type {any} */ (Object.fromEntries(ALL.map((name) => [name, draft[name] ?? inherited(name)])));
}

/**
 * The draft with one value set; setting what holds without it takes it out.
 * @template {keyof RuleNumbers} K
 * @param {AlertRule} rule @param {Draft} draft @param {K} name @param {RuleNumbers[K]} value @returns {Draft}
 */
export function withValue(rule, draft, name, value) {
  const { [name]: _, ...rest } = draft;
  return drafted(rule, /** @type {Draft} */ (rest))[name] === value ? /** @type {Draft} */ (rest) : { ...draft, [name]: value };
}

/** What is sent. @param {Map<AlertKind, Draft>} drafts @returns {RuleChange[]} */
export function changesOf(drafts) {
  return [...drafts].filter(([, draft]) => Object.keys(draft).length).map(([kind, draft]) => ({ kind, ...draft }));
}

/** @param {AlertRule[]} rules @param {Map<AlertKind, Draft>} drafts */
export function isChanged(rules, drafts) {
  const ordered = (/** @type {Draft} */ draft) => JSON.stringify(Object.entries(draft).sort());
  return rules.some((rule) => ordered(draftOf(rule)) !== ordered(drafts.get(rule.kind) ?? {}));
}

/** Whether a number may stand in a field of these limits. @param {{least: number, most: number, is_whole: boolean}} limits @param {number} value */
export function fits({ least, most, is_whole }, value) {
  return Number.isFinite(value) && value >= least && value <= most && (!is_whole || Number.isInteger(value));
}
