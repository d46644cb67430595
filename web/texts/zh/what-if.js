/** 在已记录的范数上试用另一个阈值。 */

export default {
  "whatif.title": "假如",
  "whatif.line": "要试用的阈值 max_norm",
  "whatif.line.value": "{threshold}，裁剪 {share}",
  "whatif.drag": "拖动以试用另一个阈值；双击恢复",
  "whatif.recommended": "试试 {range}",
  "whatif.recommended.why": "裁剪所示最近各步的 10–20 %",
  "whatif.reset": "恢复",
  "whatif.reset.to": "恢复为 {threshold}",
  "whatif.wrong": "阈值必须是大于 0 的数。",
  "whatif.before": "这些数字对应 {threshold}。",
  "whatif.clipped": "被裁剪",
  "whatif.coef": "平均系数",
  "whatif.spikes": "拦下的尖峰",
  "whatif.spikes.none": "这些步中没有尖峰",
  "whatif.caught": "{all} 个中的 {clipped} 个",
  "whatif.now": "（现为 {value}）",
  "whatif.notes": "在已记录的范数上重放；之后的范数会有所不同。",
  "whatif.notes.own": "这是运行自身的动态阈值，此处为其最新值。",
  "whatif.notes.of": "在 {count} 个已记录的范数上重放；之后的范数会有所不同。",
  "whatif.error": "没有结果：{reason}",

  "histogram.label": "{count} 个梯度范数的直方图",
  "histogram.label.share": "{count} 个梯度范数的直方图，其中 {share} 高于 {threshold}",
  "histogram.above": "高于 {share}",
  "histogram.below": "低于 {share}",
};
