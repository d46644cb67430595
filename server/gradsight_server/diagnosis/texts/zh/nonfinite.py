"""Simplified Chinese for the loss scale, NaN and Inf. code[.variant] → (title, advice)."""

_DETECT = (
    "要找出产生它的运算，请在 torch.autograd.set_detect_anomaly(True) 下运行几步："
    "\n\n    with torch.autograd.set_detect_anomaly(True):\n        loss = loss_fn(model(x), y)\n        "
    "loss.backward()"
    "\n\n它会使每一步慢上数倍：用完请关闭。"
)
_COUNTED = (
    "共 {num_steps:count} 步（{fraction:percent}），最早在第 {first_bad_step:count} 步"
    "[[，最多连续 {longest_streak:count} 步]]。"
)
_LAYER = "[[最先出现在 {names}：请检查那里，以及这些步的批次。]]"
_FORWARD = "损失本身就不是有限值，因此请检查这些步的批次和前向传播[[（最先出现在 {names} 的梯度中）]]。"
_SKIPPED = "最近 {num_judged:count} 步中有 {num_skipped_since:count} 步被跳过"

TEXTS: dict[str, tuple[str, str]] = {
    # Loss scale verdicts
    "loss_scale_not_used": ("没有损失缩放", "无需处理。"),
    "loss_scale_unknown": ("未记录损失缩放", "使用 fp16 时请记录 loss_scale 和 skipped。"),
    "loss_scale_static": ("损失缩放是固定的", "它保持在 {last_scale}。无需处理。"),
    "loss_scale_static.too_high": (
        "固定的损失缩放过高",
        "最近 {num_judged:count} 步中有 {num_skipped_since:count} 步[[在缩放为 {last_scale} 时]]溢出"
        "[[，最多连续 {longest_streak:count} 步]]。请将缩放除以 16，或使用动态缩放。",
    ),
    "loss_scale_warming_up": (
        "正在寻找损失缩放",
        "[[缩放从 {first_scale} 降到 {last_scale} 期间]]跳过了 {num_skipped_first:count} 步。"
        "缩放器就是这样开始的；无需处理。",
    ),
    "loss_scale_warming_up.inferred": (
        "正在寻找损失缩放",
        "跳过一些步之后，缩放从 {first_scale} 降到 {last_scale}。缩放器就是这样开始的；无需处理。",
    ),
    "loss_scale_healthy": (
        "损失缩放正常",
        "[[现为 {last_scale}；]]{num_steps:count} 步中跳过了 {num_skipped:count} 步。无需处理。",
    ),
    "loss_scale_healthy.inferred": (
        "损失缩放正常",
        "[[现为 {last_scale}；]]从缩放的下降来看，{num_steps:count} 步中跳过了 {num_skipped:count} 步。无需处理。",
    ),
    "loss_scale_thrashing": (
        "溢出的步太多",
        _SKIPPED + "（{skip_rate_since:percent}）[[，最多连续 {longest_streak:count} 步]]。梯度接近 fp16 的上限："
        "请降低学习率、裁剪得更紧，或使用 bf16。",
    ),
    "loss_scale_collapsing": (
        "损失缩放持续下跌",
        "它不断创出新低[[，现为 {last_scale}]]；" + _SKIPPED + "。梯度或激活值在增大：请立即降低学习率或回到检查点，"
        "以免再没有更新生效；或使用 bf16。",
    ),
    "loss_scale_collapsed": (
        "损失缩放已崩溃",
        "连续 {longest_streak:count} 步被跳过[[，缩放跌到 {min_scale}]]：模型在这些步上没有学习。请停止训练；"
        "找出溢出的层和批次，回到此前的检查点，降低学习率，或使用 bf16。" + _DETECT,
    ),
    "loss_scale_collapsed.floor": (
        "损失缩放已到下限，仍然溢出",
        "最近 {newest_streak:count} 步在缩放 {last_scale} 时被跳过，缩放不再下降：模型没有学习。更小的缩放也无济于事。"
        "请停止训练；找出溢出的层和批次，回到此前的检查点，降低学习率，或使用 bf16。" + _DETECT,
    ),
    "loss_scale_collapsed.tiny": (
        "损失缩放已崩溃",
        "它跌到 {min_scale}。低于 1 时它反而缩小梯度，可见溢出的不是被放大的小梯度，而是模型本身。"
        "请找出溢出的层和批次，降低学习率，或使用 bf16。" + _DETECT,
    ),
    "loss_scale_model_nan": (
        "模型本身产生 NaN",
        "无论缩放降到多低[[（现为 {last_scale}）]]，最近 {newest_streak:count} 步都是 NaN。更小的缩放无法解决："
        "是权重、数据或学习率有问题。请检查第一个异常步的批次和学习率，并回到此前的检查点。" + _DETECT,
    ),
    "loss_scale_model_nan.loss": (
        "损失本身为 NaN",
        "自第 {first_bad_step:count} 步起。损失取自缩放之前，因此与损失缩放无关：是权重、数据或学习率有问题。"
        "请检查第一个异常步的批次和学习率，并回到此前的检查点。" + _DETECT,
    ),
    "loss_scale_found": (
        "最初跳过的步找到了损失缩放",
        "寻找缩放期间跳过了 {num_skipped_first:count} 步，缩放器启动时就是如此。无需处理。",
    ),
    "loss_scale_never_grows": (
        "损失缩放从不增长",
        "在 {last_scale} 已有 {num_steps:count} 个无溢出的步，而它本应每 {growth_interval:count} 步加倍。"
        "请确认每一步之后都调用了 scaler.update()。",
    ),
    "loss_scale_under_bf16": (
        "bf16 不需要损失缩放",
        "bf16 的数值范围与 fp32 相同：缩放（{last_scale}）对它不起作用。请去掉 GradScaler。",
    ),
    "loss_scale_not_recorded": ("未记录损失缩放", "它始终为 −1 或 0：这是框架的占位值。"),
    "gradients_underflow": (
        "大部分缩放后的梯度为零",
        "{fraction:percent} 的元素在 fp16 中下溢。请提高损失缩放，或使用 bf16。",
    ),
    # Non-finite
    "run_dead": (
        "运行自第 {first_bad_step:count} 步起已失效",
        "此后的 {num_steps:count} 步全是 NaN 或 Inf 且未被跳过：权重已是 NaN，不会恢复。请停止训练；"
        "回到那一步之前的检查点。" + _DETECT,
    ),
    "run_dead.loss_zero": (
        "运行自第 {first_bad_step:count} 步起已失效",
        "此后的 {num_steps:count} 步范数全是 NaN 或 Inf：权重已是 NaN，不会恢复。日志中的损失 0.0 并不真实；"
        "是记录器在损失为 NaN 时写入的。请停止训练；回到那一步之前的检查点。" + _DETECT,
    ),
    "loss_nonfinite": (
        "损失曾为 NaN 或 Inf",
        "共 {num_steps:count} 步，最早在第 {first_bad_step:count} 步。请检查这些步的批次。",
    ),
    "loss_nonfinite.goes_on": (
        "损失自第 {first_bad_step:count} 步起为 NaN 或 Inf",
        "它不会自行恢复。请停止训练；检查那一步的批次，并回到此前的检查点。" + _DETECT,
    ),
    "nonfinite_steps": ("梯度中有 NaN 或 Inf", _COUNTED + _LAYER + _DETECT),
    "nonfinite_steps.guarded": (
        "梯度中有 NaN 或 Inf；这些步已被跳过",
        _COUNTED + "权重没有受损。" + _LAYER + _DETECT,
    ),
    "nonfinite_steps.loss_lives": (
        "最近的梯度全是 NaN 或 Inf，而损失是有限的",
        _COUNTED + "若权重中有 NaN，损失也会是 NaN，因此这些更新没有执行，或仍在寻找损失缩放。"
        "记录 skipped 和 loss_scale 才能分辨。" + _LAYER + _DETECT,
    ),
    "nonfinite_steps.loss": ("损失和梯度中有 NaN 或 Inf", _COUNTED + _FORWARD + _DETECT),
    "nonfinite_steps.loss_guarded": (
        "损失和梯度中有 NaN 或 Inf；这些步已被跳过",
        _COUNTED + "权重没有受损。" + _FORWARD + _DETECT,
    ),
    "nonfinite_applied": (
        "执行了含 NaN 或 Inf 的更新",
        "有 {num_steps:count} 步的梯度不是有限值，更新却生效了。不要在 scaler.step(optimizer) 之外再调用 "
        "optimizer.step()，并跳过梯度非有限的步。",
    ),
    "steps_skipped": (
        "许多更新被跳过",
        "跳过了 {num_skipped:count} 步（{fraction:percent}），没有损失缩放可以解释"
        "[[，最近连续 {newest_streak:count} 步]]。"
        "期间损失可能看起来正常：请找出梯度为 NaN 的输入（在 CTC 中：比输入更长的目标）。",
    ),
    "no_gradient_steps": (
        "没有梯度的步",
        "有 {num_steps:count} 步（{fraction:percent}）此优化器的参数都没有梯度。请确认其参数参与了损失且未被冻结，"
        "并且每一步之前都做了反向传播。",
    ),
}
