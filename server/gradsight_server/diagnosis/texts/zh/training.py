"""Simplified Chinese for layers, training and the record. code[.variant] → (title, advice)."""

TEXTS: dict[str, tuple[str, str]] = {
    # Layers
    "layers_dominant": (
        "范数主要来自一层",
        "{names} 占范数平方的 {share:percent}，因此裁剪取决于这一层。若它的尖峰拖慢了其他层，"
        "请为它单独设置阈值或学习率。",
    ),
    "layers_vanishing": (
        "某些层的梯度消失",
        "{names} 的梯度不到大梯度层的万分之一。请检查那里的初始化、归一化和残差路径。",
    ),
    "layers_exploding": (
        "某些层的梯度爆炸",
        "{names} 的梯度超过其他层的一千倍。请检查那里的初始化和归一化，或为该层单独设置阈值。",
    ),
    "layers_dead": (
        "没有任何梯度信号的层",
        "{names} 的梯度在至少 {num_rows:count} 个记录的步中恰好为 0，而其他层在学习。是失活的单元，还是没有参与损失？",
    ),
    "layers_sudden_change": (
        "某层的梯度发生突变",
        "{names} 相对其他层变化了 {ratio} 倍。若那里没有冻结或解冻什么，请检查那一步发生了什么。",
    ),
    "layers_without_gradient": (
        "从未有过梯度的层",
        "{num_layers_in_all:count} 层中的 {num_layers:count} 层：{names}。若已冻结则没有问题；否则它们没有参与损失。",
    ),
    "layers_do_not_add_up": (
        "各层范数与总范数不符",
        "各层平方和的平方根是总范数的 {ratio} 倍。它们可能取自不同时刻或不同分片，或者其中之一多了或少了开方或缩放。",
    ),
    # Training and recording
    "lr_moves_without_steps": (
        "没有更新生效，学习率却在衰减",
        "它在被跳过的步上衰减了 {num_decays:count} 次，最多连续 {longest:count} 次；"
        "总共只有 {num_applied:count} 次更新生效。"
        "请仅在优化器更新生效时调用 scheduler.step()：即 scaler.get_scale() 没有下降时。",
    ),
    "lr_jumped": (
        "学习率在第 {at_step:count} 步突变",
        "从 {lr_before} 变为 {lr_after}。若非有意，它可以解释之后发生的一切：请检查学习率计划。",
    ),
    "update_ratio_unusual.high": (
        "更新相对权重过大",
        "通常的更新为权重的 {update_ratio}；常见值约为 0.001。请考虑降低学习率。",
    ),
    "update_ratio_unusual.low": (
        "更新相对权重过小",
        "通常的更新为权重的 {update_ratio}；常见值约为 0.001。请考虑提高学习率。",
    ),
    "validation_turned.tighter": (
        "裁剪变紧的同时验证变差",
        "{names} 在第 {turned_at_step:count} 步最佳（{best}，现为 {newest}）；此后 {clip_fraction_after:percent} "
        "的步被裁剪，此前为 {clip_fraction_before:percent}。范数增大是发散的早期信号：请降低学习率，或回到那一步。",
    ),
    "validation_turned.looser": (
        "裁剪不再起作用的同时验证变差",
        "{names} 在第 {turned_at_step:count} 步最佳（{best}，现为 {newest}）；此后 {clip_fraction_after:percent} "
        "的步被裁剪，此前为 {clip_fraction_before:percent}。模型可能已记住训练集：请考虑停在那一步。",
    ),
    "ranks_disagree": (
        "各进程的范数不一致",
        "在第 {at_step:count} 步：{largest_norm} 对 {smallest_norm}，共有 {num_steps:count} 步如此。"
        "它们以不同的系数裁剪。请对所有进程的范数平方做一次归约；专家层梯度与稠密层一样相除。",
    ),
    "telemetry_lost": (
        "有些步在传输中丢失",
        "训练进程丢弃了 {num_rows:count} 行（{fraction:percent}）[[（{names}）]]，此处缺少它们。训练本身未受影响。",
    ),
    "telemetry_gap": (
        "缺少一些步",
        "有 {num_gaps:count} 处缺口，约 {num_steps:count} 步没有记录。那里发生了什么无从得知。",
    ),
}
