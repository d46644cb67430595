# ruff: noqa: E501  (the lines of a log are as long as they are)
"""Each console is told from the others by its lines, among lines of no use. Sources: the tests of the formats."""

from pathlib import Path

import pytest

from gradsight_server.importers.registry import recognise

SAMPLES = {
    "megatron": " iteration        5/     400 | consumed samples:           40 | elapsed time per iteration (ms): 2100.5 | learning rate: 1.000E-05 | global batch size:     8 | lm loss: 1.100000E+01 | loss scale: 1024.0 | grad norm: 6.250 | number of skipped iterations:   0 | number of nan iterations:   0 |",
    "deepspeed": "[2024-05-01 10:00:05,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=2, lr=[1e-05], mom=[(0.9, 0.95)]",
    "fairseq": "2023-02-01 08:00:10 | INFO | train_inner | epoch 002:     51 / 100 loss=5.25, ppl=38.05, num_updates=151, lr=0.0002, gnorm=1.75, loss_scale=16, wall=70",
    "icefall": "2024-03-01 09:00:00,100 INFO [train.py:1064] (0/2) Epoch 1, batch 50, loss[loss=3.125, over 900.00 frames. ], tot_loss[loss=3.5, over 9000.00 frames. ], batch size: 20, lr: 2.50e-02, grad_scale: 4.0",
    "espnet2": "[gpu1] 2024-01-01 10:00:00,000 (trainer:762) INFO: 1epoch:train:1-50batch: iter_time=1.0e-04, loss=65.129, grad_norm=54.5, clip=100.000, loss_scale=6.554e+04, optim0_lr0=1.485e-05, train_time=0.624",
    "llmc": "step    1/900 | loss 10.900000 (+nanz)| norm 14.5000 (+nanz)| lr 1.00e-06 | 900.50 ms | 45.0% bf16 MFU | 58000 tok/s",
    "nanogpt": "step     0 | loss: 10.925000 | lr 8.3916e-07 | norm: 15.2500 | dt: 1200.50ms | tok/sec: 43000.25",
    "torchtitan": "[rank0]:[titan] 2026-01-01 10:00:01,000 - root - INFO - step:  1  loss: 12.25000  grad_norm:  3.5000  memory:  9.49GiB(9.99%)  tps: 636  tflops: 53.57  mfu: N/A",
    "torchtune": "Step 1 | loss:2.5 lr:2e-05 tokens_per_second_per_gpu:123.5 grad_norm:3.25 peak_memory_active:4.5",
    "swin": "[2022-05-01 10:00:00 swin](main.py 220): INFO Train: [0/30][0/200]\teta 1:02:03 lr 0.000001\t wd 0.0500\ttime 0.9000 (0.9000)\tloss 6.9500 (6.9500)\tgrad_norm 1.5000 (1.5000)\tloss_scale 65536.0000 (65536.0000)\tmem 900MB",
    "metric_logger": "Epoch: [0]  [  0/400]  eta: 0:20:00  lr: 0.000001  loss: 7.0000 (7.0000)  loss_scale: 65536.0000 (65536.0000)  grad_norm: 1.2500 (1.2500)  time: 3.0000  data: 0.1  max mem: 900",
    "epoch_json": '{"train_lr": 1e-05, "train_loss": 6.5, "train_grad_norm": NaN, "test_loss": 6.0, "epoch": 0}',
    "mmcv": "2022-01-01 10:00:00,000 - mmdet - INFO - Epoch [1][50/300]\tlr: 1.000e-03, eta: 0:59:00, time: 0.700, data_time: 0.002, memory: 900, loss_cls: 0.5, loss: 1.5000, grad_norm: 30.5000",
    "openai_table": "-----------------------\n| grad_norm | 8.25     |\n| loss      | 1.5      |\n| step      | 1.23e+04 |\n-----------------------",
    "verl": "step:1 - actor/pg_loss:np.float64(-0.125) - actor/grad_norm:np.float64(0.75) - actor/lr:1e-06",
    "hf_console": "{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}",
    "coqui": "   --> STEP: 1/90 -- GLOBAL_STEP: 7\n     | > loss: 3.5  (3.75)\n     | > grad_norm: 4.5  (4.5)",
    "lerobot": "INFO 2025-01-01 10:00:00 ts/train.py:232 step:200 smpl:2K ep:3 epch:0.06 loss:3.500 grdn:94.750 lr:1.0e-05 updt_s:0.500",
}
ALSO = {
    "mmcv": '{"lr": 0.001, "data_time": 0.1, "grad_norm": 5.5, "loss": 1.3, "time": 0.7, "epoch": 2, "iter": 450, "memory": 900, "step": 450}',
    "fairseq": '{"epoch": 2, "update": 1.5, "loss": "4.0", "num_updates": "60", "gnorm": "0.5", "loss_scale": "4"}',
    "llmc": "s:0 trl:10.8500 lr:0.000002 norm:12.50",
    "nanogpt": "step 00010/00500 (2.00%) | loss: 8.500000 | grad norm: 0.7500 | lrm: 1.00 | dt: 410.00ms | mfu: 48.00",
    "hf_console": "step 7: {'train/loss': 0.125, 'train/grad_norm': 2.5, 'train/lr-pg_0': 1e-07, 'train/step': 7}",
}
OTHERS = "Namespace(lr=0.1)\nloading data ...\nepoch 1 of 9, step 3\nval loss: 2.5\n  5%|#     | 3/60 [00:01<00:19,  3.00it/s]\n"


@pytest.mark.parametrize(("name", "line"), [*SAMPLES.items(), *ALSO.items()])
def test_a_console_is_told_by_its_lines(name: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text(f"{OTHERS}{line}\n{line}\n{OTHERS}" if line[0] != "{" else f"{line}\n{line}\n{line}\n")
    found = recognise(path)
    assert found is not None
    assert found.name == name


def test_norms_beside_deepspeeds_lines_decide(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("\n".join([SAMPLES["deepspeed"], SAMPLES["deepspeed"], SAMPLES["megatron"]]) + "\n")
    found = recognise(path)
    assert found is not None
    assert found.name == "megatron"
