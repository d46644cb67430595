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

  /** Within the plots. @param {number} pixel */
  clamp(pixel) {
    return Math.min(this.right, Math.max(this.left, pixel));
  }
}
