/** The server's advice taken apart: sentences and the code among them; pure. */

/** @typedef {{kind: "words" | "code", text: string}} Block */

/**
 * Paragraphs; those whose lines are all indented are code.
 * @param {string} advice
 * @returns {Block[]}
 */
export function blocksOf(advice) {
  return advice
    .split(/\n{2,}/)
    .filter((part) => part.trim())
    .map((part) => {
      const lines = part.split("\n");
      const isCode = lines.every((line) => /^( {4}|\s*$)/.test(line));
      return isCode ? { kind: "code", text: lines.map((line) => line.slice(4)).join("\n") } : { kind: "words", text: part.trim() };
    });
}

/**
 * For a card: the sentence with the numbers, and the others before any code; the one that leads to the code stays with it.
 * @param {string} advice
 * @returns {{lead: string, rest: string}}
 */
export function inBrief(advice) {
  const [first] = blocksOf(advice);
  if (first?.kind !== "words") return { lead: "", rest: "" };
  const sentences = sentencesOf(first.text).filter((sentence) => !/[:：]$/.test(sentence));
  return { lead: sentences[0] ?? "", rest: sentences.slice(1).join(/[。！？]$/.test(sentences[0]) ? "" : " ") };
}

/** A full stop ends a sentence where a capital follows the space: `threshold 1.0, so` does not. A Chinese one always does. @param {string} text */
function sentencesOf(text) {
  return text.split(/(?<=[.!?:])\s+(?=[A-Z])|(?<=[。！？])(?=.)/);
}
