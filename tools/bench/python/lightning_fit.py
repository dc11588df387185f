"""Lightning, with everything that costs time and can be turned off turned off. EPOCHS."""
import logging
import sys
import time
import warnings

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
import lightning
import torch
from torch.nn import functional

import digits


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = digits.model()
        self.right = 0

    def training_step(self, batch, _):
        x, y = batch
        return functional.cross_entropy(self.model(x), y)

    def test_step(self, batch, _):
        x, y = batch
        self.right += (self.model(x).argmax(1) == y).sum().item()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=digits.LR, weight_decay=digits.WEIGHT_DECAY)


module = Digits()
train = digits.loader("tra", digits.BATCH_SIZE, shuffle=True)
test = digits.loader("tes", 256, shuffle=False)
trainer = lightning.Trainer(max_epochs=int(sys.argv[1]), accelerator="cpu", devices=1, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
began = time.perf_counter()
trainer.fit(module, train)
trainer.test(module, test, verbose=False)
digits.report(began, trainer.global_step, module.right / len(test.dataset))
