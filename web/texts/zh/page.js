/** 每个页面共有的文字。 */

export default {
  "app.name": "Gradsight",

  "nowhere.title": "没有这个页面",
  "nowhere.words": "Gradsight 没有地址 {path}。",
  "nowhere.link": "全部运行",

  "connection.connecting": "正在连接…",
  "connection.live": "实时",
  "connection.lost": "连接已断开，正在重试。",
  "connection.since": "上次联系：{ago}。",

  "state.running": "运行中",
  "state.stalled": "停滞",
  "state.silent": "失联",
  "state.finished": "已完成",
  "state.failed": "失败",
  "state.running.why": "不断有新的步到来",
  "state.stalled.why": "进程仍在，但已有一段时间没有完成一步",
  "state.silent.why": "已有 30 秒或更久没有收到训练进程的消息",
  "state.finished.why": "训练报告已完成",
  "state.failed.why": "训练报告已失败",

  "page.failed": "无法加载页面的这一部分。",
  "error.no.answer": "服务器没有响应。",
  "error.status": "服务器返回 {status}。",

  "dialog.close": "关闭",
  "dialog.cancel": "取消",

  "toast.label": "消息",
  "toast.close": "关闭此消息",

  "nav.label": "页面",
  "nav.runs": "运行",
  "nav.alerts": "告警",
  "nav.settings": "设置",
  "nav.help": "快捷键",
  "nav.skip": "跳到内容",

  "help.title": "快捷键",
  "help.everywhere": "任何地方",
  "help.runs": "在运行列表中",
  "help.run": "在运行的图表中",
  "help.help": "显示此帮助",
  "help.go.runs": "前往运行列表",
  "help.go.alerts": "前往告警",
  "help.go.settings": "前往设置",
  "help.search": "搜索",
  "help.next": "下一个运行",
  "help.previous": "上一个运行",
  "help.open": "打开运行",
  "help.pick": "选中或取消选中",
  "help.unpick": "清除选择",
  "help.cross": "移动十字线",
  "help.zoom": "放大和缩小",
  "help.all": "显示全部步",
  "help.hide": "隐藏十字线",

  "time.now": "刚刚",
  "time.ago": "{time}前",
  "time.s": "{s} 秒",
  "time.min": "{min} 分钟",
  "time.h": "{h} 小时",
  "time.d": "{d} 天",
  "time.h.min": "{h} 小时 {min} 分钟",
  "time.d.h": "{d} 天 {h} 小时",
  "rate.fast": "{rate} 步/秒",
  "rate.slow": "{time} 秒/步",

  "copy": "复制",
  "copy.done": "已复制",

  "retry": "重试",
};
