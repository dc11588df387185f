"""Writes pairs.json: merges of byte pairs and tokens of texts by Hugging Face's tokenizers 0.23, whose trainer and encoder
share no line with ours. The text is cut as ours is, at ASCII white space."""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

random.seed(4)
SYLLABLES = ["ba", "be", "lo", "lu", "mi", "na", "ro", "sta", "tri", "aaa", "né", "日本", "!", "'s", "12"]
WORDS = ["".join(random.choices(SYLLABLES, k=random.randint(1, 4))) for _ in range(150)]
TEXT = "".join(random.choices(WORDS, weights=[1 / (1 + i) for i in range(150)])[0] + random.choice([" ", " ", " ", "  ", "\n", "\t"])
               for _ in range(1500))
OTHER = "aaaaaaaa balo  lustatri\r\nné日本?! \n\n bab\x00e ~\x7f" + "".join(WORDS[:30]) + " "

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
    pre_tokenizers.Split(Regex(r" ?[^ \t\r\n]+|[ \t\r\n]+"), behavior="isolated"),
    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
    vocab_size=256 + 200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
state = json.loads(tokenizer.to_str())["model"]
ids = state["vocab"]
merges = [[ids[left], ids[right]] for left, right in (m if isinstance(m, list) else m.split(" ") for m in state["merges"])]
assert [ids[chr(256 + i)] for i in range(3)] == [188, 189, 190]  # the bytes 0, 1, 2
golden = {"text": TEXT, "merges": merges, "tokens": tokenizer.encode(TEXT).ids, "other": OTHER,
          "other_tokens": tokenizer.encode(OTHER).ids}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
