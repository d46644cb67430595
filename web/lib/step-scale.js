/** Where a step stands on the axis that all charts share, and which step a pixel means; pure. */

export class StepScale {
  /** @param {[number, number]} steps first and last on screen @param {number} left edge of the plots in pixels @param {number} width of the plots */
  constructor([first, last], left, width) {
    this.first = first;
    this.last = last;
    this.left = left;
    this.width = width;
  }

  get right() {
    return this.left + this.width;
  }

  /** The middle of a step. @param {number} step */
  pixelAt(step) {
    return this.left + ((step - this.first + 0.5) / (this.last - this.first + 1)) * this.width;
  }

  /** @param {number} pixel */
  stepAt(pixel) {
    const step = this.first - 0.5 + ((pixel - this.left) / this.width) * (this.last - this.first + 1);
    return Math.min(this.last, Math.max(this.first, Math.round(step)));
  }

  /**
   * The first and last step once two fingers have moved, so that each stays on its step.
   * @param {[number, number]} before where they came down, in pixels
   * @param {[number, number]} after
   * @returns {[number, number]}
   */
  pinched(before, after) {
    const perPixel = (this.last - this.first + 1) / this.width;
    const [a, b] = before.map((pixel) => this.first + (pixel - this.left) * perPixel);
    const slope = (b - a) / (after[1] - after[0]);
    return [a + (this.left - after[0]) * slope, a + (this.right - after[0]) * slope];
  }

  /** Within the plots. @param {number} pixel */
  clamp(pixel) {
    return Math.min(this.right, Math.max(this.left, pixel));
  }
}
