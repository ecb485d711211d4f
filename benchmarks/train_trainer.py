"""transformers' Trainer, one contestant of train.py; it needs the package accelerate."""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def hugging_face(bench: Any) -> Callable[[int], None]:
    """transformers' Trainer with DeepSpeed, fed one block of steps at a time through its own `train()`.

    Its start-up is not counted: it runs in a thread that makes one step each time it is asked.

    Args:
        bench: the `Bench` of train.py.
    """
    from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainerCallback, TrainingArguments

    c, asked = bench.shape, bench.asked
    config = Qwen3Config(**dataclasses.asdict(c), use_cache=False, attn_implementation="sdpa")
    model = Qwen3ForCausalLM(config).to(torch.float32)
    model.load_state_dict(bench.weights)
    ds = {
        "zero_optimization": {"stage": 1},
        "train_micro_batch_size_per_gpu": asked.rows,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": bench.dtype == torch.bfloat16},
    }
    folder = tempfile.mkdtemp()
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=asked.rows,
        max_steps=10**6,
        learning_rate=bench.rate,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=1.0,
        optim="adamw_torch_fused",
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
        bf16=bench.dtype == torch.bfloat16,
        use_cpu=bench.device == "cpu",
        deepspeed=ds,
        dataloader_num_workers=0,
        seed=0,
    )
    return _Paused(bench, model, arguments, Trainer, TrainerCallback)


class _Paused:
    """A Trainer in a thread, that makes one step each time it is called."""

    def __init__(self, bench: Any, model: nn.Module, arguments: Any, trainer: Any, callback: Any) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        outer = self
        self.failed: BaseException | None = None

        class Rows(torch.utils.data.Dataset):  # type: ignore[type-arg]
            def __len__(self) -> int:
                return 10**6

            def __getitem__(self, index: int) -> dict[str, Tensor]:
                row = torch.from_numpy(bench.row(index))
                return {"input_ids": row[:-1], "labels": row[:-1]}

        class Pause(callback):  # type: ignore[misc]
            def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
                outer._go.acquire()

            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                outer._done.release()

        def work() -> None:
            torch.set_num_threads(bench.asked.threads)
            try:
                trainer(model=model, args=arguments, train_dataset=Rows(), callbacks=[Pause()]).train()
            except BaseException as error:
                outer.failed = error
                outer._done.release()

        threading.Thread(target=work, daemon=True).start()

    def __call__(self, number: int) -> None:
        self._go.release()
        self._done.acquire()
        if self.failed:
            raise self.failed
