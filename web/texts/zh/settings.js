/** 设置：此浏览器的，服务器的。 */

export default {
  "settings.title": "设置",
  "settings.browser": "在此浏览器中",
  "settings.theme": "主题",
  "settings.language": "语言",

  "theme.label": "主题",
  "theme.system": "跟随系统",
  "theme.light": "浅色",
  "theme.dark": "深色",

  "language.label": "语言",
  "language.system": "跟随浏览器",

  "server.title": "服务器",
  "server.error": "无法读取服务器状态。",
  "server.version": "版本",
  "server.up": "已运行",
  "server.viewers": "实时查看者",
  "server.waiting": "等待写入",
  "server.access": "访问",
  "server.access.token": "凭令牌",
  "server.access.open": "对所有能访问到的人开放",
  "server.leader": "后台任务",
  "server.leader.here": "由本服务器执行",
  "server.leader.elsewhere": "由同一数据库上的另一台服务器执行",

  "storage.title": "存储",
  "storage.database": "数据库",
  "storage.size": "磁盘占用",
  "storage.runs": "运行",
  "storage.archived": "其中 {count} 个已归档",
  "storage.steps": "步",
  "storage.per.step": "每步",
  "storage.retention": "原始步",
  "storage.keep.all": "全部保留",
  "storage.keep.days": "保留 {days} 天",
  "storage.keep.steps": "每个流保留最近 {steps} 步",
  "storage.rollups": "更早的步以汇总形式保留在图表中。",
};
