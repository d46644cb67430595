/** 并排比较多个运行。 */

export default {
  "compare.title": "对比",
  "compare.loading": "正在加载运行…",
  "compare.error": "无法加载这些运行。",
  "compare.few": "请选择二到八个运行：在这里添加，或在运行列表中勾选。",
  "compare.empty": "这些运行在此范围内都没有记录",
  "compare.align": "对齐方式",
  "compare.align.step": "按步",
  "compare.align.time": "按时间",
  "compare.keys": "所有运行的图表。拖动以放大；左右方向键移动十字线，0 显示全部步。",
  "compare.chart": "{name}，{low} 到 {high}：{runs}",
  "compare.add": "按名称或 id 添加运行",
  "compare.add.do": "添加",
  "compare.add.unknown": "请从列表中选择运行，或粘贴其 id。",
  "compare.out": "将 {name} 移出对比",
  "compare.facts": "第 {step} 步 · 范数 {norm} · 损失 {loss}",
  "compare.settings": "不同之处",
  "compare.settings.all": "显示全部",
  "compare.settings.same": "记录的所有设置都相同。",
  "compare.settings.none": "这些运行没有记录设置。",
  "compare.setting": "设置",
};
