"""Simplified Chinese for clipping and the norms. code[.variant] → (title, advice)."""

_USUAL = (
    "常用的起始值（各来源说法不一）：卷积网络 1.0 或不裁剪，transformer 0.5 或 1 到 5，循环网络 5 到 15。"
    "更好的办法：先记录几百步的范数，取其第 90 百分位。"
)

_RANGE = "[[ 到 {recommended_low}–{recommended_high}（裁剪这些步的 10–20 %）]]"
_CLIPPED = "最近 {num_judged:count} 步中有 {clip_fraction:percent} 被裁剪"
_BOTH = "范数中位数为 {median_norm}，阈值为 {max_norm}"

TEXTS: dict[str, tuple[str, str]] = {
    # Clipping verdicts
    "clipping_off": ("裁剪已关闭", "没有需要裁剪的尖峰。无需处理。"),
    "clipping_unknown": ("对裁剪尚无结论", _USUAL),
    "clipping_unknown.few": (
        "步数太少，无法对裁剪下结论",
        "目前有 {num_finite:count} 个有限的梯度范数，下结论需要 50 个。请继续运行。" + _USUAL,
    ),
    "clipping_unknown.no_norm": (
        "没有梯度范数，因此对裁剪没有结论",
        "请记录 grad_norm_before_clip，即反缩放后的梯度在裁剪前的范数。" + _USUAL,
    ),
    "clipping_unknown.not_finite": (
        "没有有限的梯度范数，因此对裁剪没有结论",
        "到目前为止所有范数都是 NaN 或 Inf。请先解决这个问题。",
    ),
    "clipping_unknown.zero": (
        "所有范数为零，因此对裁剪没有结论",
        "没有可裁剪的内容。请检查损失是否依赖可训练的参数，以及记录的是否确实是范数。",
    ),
    "clipping_unknown.no_threshold": (
        "裁剪阈值未知",
        "请记录 max_norm，或指明它的值（--max-norm），或说明裁剪已关闭。范数中位数为 {median_norm}"
        "[[；阈值取 {recommended_low}–{recommended_high} 会裁剪这些步的 10–20 %]]。" + _USUAL,
    ),
    "clipping_inactive": (
        "裁剪几乎不起作用",
        _CLIPPED + "[[：阈值 {max_norm} 高于几乎所有范数（中位数 {median_norm}）]]。没有尖峰需要裁剪，所以这不是故障。"
        "[[若希望它起作用：{recommended_low}–{recommended_high} 会裁剪这些步的 10–20 %。]]",
    ),
    "clipping_inactive.collapsed": (
        "已经没有可裁剪的内容",
        _CLIPPED + "，因为范数已经崩溃（中位数 {median_norm}，阈值 {max_norm}）。请看与此相关的发现。",
    ),
    "clipping_healthy": ("裁剪正常", _CLIPPED + "。无需处理。"),
    "clipping_healthy.safety_net": (
        "裁剪正常",
        "它作用于 {clip_fraction:percent} 的步，并拦下了 {num_spikes:count} 个尖峰。无需处理。",
    ),
    "clipping_healthy.adaptive": (
        "裁剪正常",
        "阈值随范数变化；该策略裁剪了 {clip_fraction:percent} 的步，这正是它的用意。无需处理。",
    ),
    "clipping_healthy.per_layer": (
        "裁剪正常",
        "在 {clip_fraction:percent} 的步中有某些层被裁剪；整体上梯度保留了[[ {median_clip_coef:percent} 的]]大小。"
        "无需处理。",
    ),
    "clipping_firm": (
        "裁剪较频繁",
        _CLIPPED
        + "（阈值 {max_norm}，范数中位数 {median_norm}）。可以保持不变；若想少裁剪，请提高 max_norm"
        + _RANGE
        + "。",
    ),
    "clipping_firm.exploding": (
        "裁剪频繁，因为范数正在爆炸",
        _CLIPPED + "。请不要动阈值：变大的是范数。",
    ),
    "clipping_unknown.not_applied": (
        "裁剪没有真正执行，因此不作判断",
        "声明了阈值 {max_norm}，但使用的是未经裁剪的梯度。请看与此相关的发现。",
    ),
    "clipping_firm.scaled": (
        "裁剪频繁，而梯度尚未反缩放",
        "请先反缩放，再判断阈值：见关于范数的发现。",
    ),
    "clipping_too_tight.scaled": (
        "大多数步被裁剪，因为梯度尚未反缩放",
        _CLIPPED + "，多裁了损失缩放那么多倍。请先反缩放；那时阈值 {max_norm} 也许是合适的。",
    ),
    "clipping_firm.after_clip": (
        "裁剪较频繁",
        "最近 {num_judged:count} 步中有 {clip_fraction:percent} 的范数恰好停在阈值 {max_norm}。裁剪了多少无从得知："
        "请记录裁剪前的范数。",
    ),
    "clipping_too_tight.after_clip": (
        "裁剪阈值过紧",
        "最近 {num_judged:count} 步中有 {clip_fraction:percent} 的范数恰好停在阈值 {max_norm}，可见它们被裁剪了；"
        "裁剪了多少无从得知。请记录裁剪前的范数，并提高 max_norm 或降低学习率。",
    ),
    "clipping_too_tight.exploding": (
        "大多数步被裁剪，因为范数正在爆炸",
        _CLIPPED + "。不要提高 max_norm（{max_norm}）：变大的是范数，裁剪正在约束它们。",
    ),
    "clipping_too_tight": (
        "裁剪阈值过紧",
        _CLIPPED + "；" + _BOTH + "[[，因此每一步约为其大小的 1/{median_clip_coef:inverse}]]。"
        "请提高 max_norm" + _RANGE + "，或保持不变并降低学习率：现在的裁剪相当于暗中降低了学习率。",
    ),
    "clipping_too_tight.sgd": (
        "裁剪阈值过紧",
        _CLIPPED + "；" + _BOTH + "。对 SGD 而言，这相当于暗中降低了学习率[[：平均每一步只剩 {mean_clip_coef:percent} "
        "的大小]]。请提高 max_norm" + _RANGE + "[[，若要保持相同的步长，将学习率乘以约 {mean_clip_coef}]]。",
    ),
    "clipping_too_tight.adam": (
        "裁剪阈值过紧",
        _CLIPPED + "；" + _BOTH + "。Adam 不受固定系数影响，但这里的系数波动达 {clip_coef_spread:percent}："
        "梯度大的步所占分量低于应有的水平。请提高 max_norm" + _RANGE + "；若此后训练不稳定，请降低学习率。",
    ),
    "clipping_too_tight.early": (
        "目前大多数步被裁剪",
        _CLIPPED
        + "；"
        + _BOTH
        + "。训练开始时范数较大且不稳定：几百步之后再看。若仍然如此，请提高 max_norm"
        + _RANGE
        + "。",
    ),
    "clipping_too_tight.risen": (
        "大多数步被裁剪，因为范数上升了",
        _CLIPPED + "；" + _BOTH + "。请先看损失：若损失也在上升，请降低学习率，阈值保持不变。若损失在下降，"
        "则阈值已不再合适：请提高 max_norm" + _RANGE + "。",
    ),
    "clipping_too_tight.steady": (
        "几乎每一步都被裁剪，且系数大致相同",
        _CLIPPED + "，约为其大小的 1/{median_clip_coef:inverse}。Adam 感觉不到固定系数，因此危害不大，"
        "但阈值也起不到保护作用。若需要保护，请提高 max_norm" + _RANGE + "。",
    ),
    "clipping_too_tight.detection": (
        "几乎每一步都被裁剪，阈值 0.1 通常如此",
        "检测 transformer 所用的阈值 0.1 有意裁剪几乎所有的步（此处为 {clip_fraction:percent}）："
        "梯度给出方向，学习率给出大小。若这不是本意，请提高 max_norm" + _RANGE + "。",
    ),
    "clipping_too_tight.per_layer": (
        "裁剪去掉了大部分梯度",
        "梯度约保留 {median_clip_coef:percent} 的大小。请提高被裁剪最多的层的阈值，或降低学习率。",
    ),
    "clipping_too_loose": (
        "裁剪阈值过松",
        "{num_spikes:count} 个尖峰中有 {num_spikes_passed:count} 个未被拦下：即使裁剪之后，它们的范数仍超过通常的 "
        "10 倍，最大的在裁剪前为 {largest_spike_ratio} 倍[[；其中 {num_spikes_with_loss_rise:count} 个之后损失上升]]。"
        "阈值为 {max_norm}，范数中位数为 {median_norm}。请降低 max_norm" + _RANGE + "。",
    ),
    "clipping_too_loose.lost": (
        "有尖峰越过阈值，损失此后未能恢复",
        "尖峰之前损失为 {loss_before}，现在为 {loss_since}；最大的尖峰达到通常范数的 {largest_spike_ratio} 倍。"
        "请回到尖峰之前的检查点，并降低 max_norm（现为 {max_norm}）" + _RANGE + "。",
    ),
    "spikes_passed.lost": (
        "有梯度尖峰进入优化器，损失此后未能恢复",
        "尖峰之前损失为 {loss_before}，现在为 {loss_since}；最大的尖峰达到通常范数的 {largest_spike_ratio} 倍。"
        "请回到尖峰之前的检查点，并启用裁剪[[，阈值取 {recommended_low}–{recommended_high}]]。",
    ),
    "spikes_passed": (
        "有尖峰越过阈值",
        "{num_spikes:count} 个尖峰中有 {num_spikes_passed:count} 个在裁剪后仍超过通常范数的 10 倍，最大的在裁剪前为 "
        "{largest_spike_ratio} 倍。[[max_norm 取 {recommended_low}–{recommended_high} 可以拦住它们。]]",
    ),
    "spikes_passed.unknown": (
        "存在梯度尖峰，但不知道是否被裁剪",
        "{num_spikes_passed:count} 步的范数超过通常的 10 倍，最大为 {largest_spike_ratio} 倍"
        "[[；其中 {num_spikes_with_loss_rise:count} 步之后损失上升]]。这样的一步可能毁掉许多步的成果。"
        "[[若未裁剪，请以 {recommended_low}–{recommended_high} 裁剪。]]",
    ),
    "spikes_passed.off": (
        "梯度尖峰进入了优化器",
        "裁剪已关闭，{num_spikes_passed:count} 步的范数超过通常的 10 倍，最大为 {largest_spike_ratio} 倍"
        "[[；其中 {num_spikes_with_loss_rise:count} 步之后损失上升]]。这样的一步可能毁掉许多步的成果。"
        "[[请以 {recommended_low}–{recommended_high} 裁剪。]]",
    ),
    "threshold_outgrown": (
        "裁剪已不再起作用",
        "它裁剪了较早各步的 {clip_fraction_before:percent}，而较新各步只有 {clip_fraction_now:percent}。若非有意，"
        "请查看发生了什么变化：模型学习时范数会下降，损失在更多样本上取平均时也会下降。",
    ),
    "threshold_not_positive": (
        "阈值 0 被视为不裁剪",
        "fairseq、DeepSpeed 和 Transformers 以 0 表示关闭；而 torch 的 clip_grad_norm_ 会使所有梯度变为零。"
        "若用的是 torch，请使用正的阈值，或去掉这个调用。",
    ),
    "threshold_not_positive.negative": (
        "负的阈值被视为不裁剪",
        "torch 的 clip_grad_norm_ 会使所有梯度反向。请使用正的阈值，或去掉这个调用。",
    ),
    "clip_not_applied": (
        "声明了裁剪，但没有执行",
        "有 {num_steps:count} 步的范数高于阈值 {max_norm}（中位数 {median_norm}），梯度却原样使用。"
        "请确认优化器得到的是裁剪后的梯度，且裁剪在反向传播之后、optimizer.step() 之前进行。",
    ),
    # Norms
    "norm_not_recorded": ("未记录梯度范数", "没有它就无法判断裁剪。"),
    "norm_not_recorded.zero": (
        "未记录梯度范数",
        "全部 {num_steps:count} 个范数恰好为 0，而损失在变化：这是框架的占位值，并非梯度消失。",
    ),
    "norm_not_recorded.negative": ("未记录梯度范数", "范数为负：这是框架的占位值。"),
    "norm_all_zero": (
        "所有梯度为零",
        "全部 {num_steps:count} 个范数恰好为 0。请检查损失是否依赖可训练的参数：有没有误被冻结、detach 或处于 "
        "no_grad 之下。也可能日志中的数并不是范数。",
    ),
    "norm_stale": (
        "同一个范数被反复记录",
        "{fraction:percent} 的范数与前一个完全相同，最多连续 {longest:count} 次。日志在重复旧值："
        "请在每一步记录 clip_grad_norm_ 的返回值。",
    ),
    "norm_after_clip": (
        "记录的是裁剪后的范数",
        "{fraction:percent} 的范数恰好停在阈值 {max_norm}，且没有更大的。可见这么多步被裁剪了，裁剪了多少无从得知。"
        "请记录 clip_grad_norm_ 的返回值，即裁剪前的范数。",
    ),
    "norm_after_clip.maybe": (
        "记录的可能是裁剪之后的范数",
        "{fraction:percent} 的范数恰好为 {largest_norm}，没有更大的，就像以 {largest_norm} 裁剪之后那样。"
        "若这就是阈值，请记录 clip_grad_norm_ 的返回值，即裁剪之前的范数，并记录 max_norm。",
    ),
    "norm_times_scale": (
        "范数仍含有损失缩放",
        "它随损失缩放变化。除以缩放后，范数中位数为 {median_norm_unscaled}，而不是 {median_norm}。"
        "请在取范数之前调用 scaler.unscale_(optimizer)，或将日志中的值除以缩放。",
    ),
    "norm_times_scale.clipped": (
        "梯度在反缩放之前就被裁剪",
        "范数随损失缩放变化：除以缩放后，范数中位数为 {median_norm_unscaled}，而不是 {median_norm}，"
        "阈值远低于应有的值。请在 clip_grad_norm_ 之前调用 scaler.unscale_(optimizer)。",
    ),
    "norm_maybe_times_scale": (
        "范数可能仍含有损失缩放",
        "范数中位数为 {median_norm}；除以损失缩放 {last_scale} 后为 {median_norm_unscaled}。"
        "若范数取自 scaler.unscale_(optimizer) 之前，请改为之后。",
    ),
    "norm_maybe_times_scale.clipped": (
        "梯度可能在反缩放之前就被裁剪",
        "范数中位数为 {median_norm}；除以损失缩放 {last_scale} 后为 {median_norm_unscaled}。"
        "请确认 scaler.unscale_(optimizer) 在 clip_grad_norm_ 之前。",
    ),
    "norm_exploding": (
        "梯度范数正在爆炸",
        "最新的范数约为 {newest_norm}，是通常值 {usual_norm} 的 {ratio} 倍，而损失并未因此改善。"
        "请停止训练，回到此前的检查点，并降低学习率。",
    ),
    "norm_exploding.unclipped": (
        "梯度范数正在爆炸",
        "最新的范数约为 {newest_norm}，是通常值 {usual_norm} 的 {ratio} 倍，而损失并未因此改善。"
        "请停止训练，回到此前的检查点，并降低学习率，或以大致通常的范数裁剪。",
    ),
    "norm_collapsed": (
        "梯度范数已崩溃",
        "它从 {norm_before} 跌到 {norm_after}，此后一直如此。若那一步没有冻结或 detach 什么，模型已停止学习："
        "请回到此前的检查点。",
    ),
    "norm_collapsed.after_spike": (
        "一个尖峰使梯度消失",
        "在范数达到 {largest_norm} 之后，它从 {norm_before} 跌到 {norm_after}，此后一直如此：这次更新把模型推到了"
        "没有梯度的地方。请回到此前的检查点，以通常范数的几倍裁剪，或降低学习率。",
    ),
    "norm_collapsed.long_ago": (
        "梯度范数已崩溃",
        "它曾约为 {norm_before}，自第 {before_step:count} 步之前起约为 {norm_after}。若没有冻结或 detach 什么，"
        "模型已停止学习：请回到跌落之前的检查点。",
    ),
    "norm_collapsed.long_ago_after_spike": (
        "一个尖峰使梯度消失",
        "范数曾约为 {norm_before}，出现过 {largest_norm} 的尖峰，自第 {before_step:count} 步之前起约为 {norm_after}："
        "模型已没有梯度。请回到尖峰之前的检查点，以通常范数的几倍裁剪，或降低学习率。",
    ),
    "norm_drift.falling": (
        "通常的范数下降了",
        "从约 {first_norm} 降到 {newest_norm}。早先选定的阈值可能已不起作用：请重新检查。",
    ),
    "norm_drift.rising": (
        "通常的范数上升了",
        "从约 {first_norm} 升到 {newest_norm}。早先选定的阈值现在可能过紧：请重新检查。",
    ),
    "no_signal_steps": (
        "有些步没有信号",
        "有 {num_steps:count} 个孤立的步（{fraction:percent}）夹在正常步之间而范数近乎为零，"
        "例如一组回答都得到相同奖励时。"
        "统计中已略去它们。",
    ),
}
