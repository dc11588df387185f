"""Writes tokenizer_files.json: files of tokenizers that Hugging Face's tokenizers 0.23 has trained, as GPT-2 has them, and the tokens that it
makes of texts; how many code points of each class its expression knows, and their sum."""
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

random.seed(5)
WORDS = ["the", "cat", "don't", "I'll", "we've", "Ж", "слово", "naïve", "日本語", "x1", "2026", "½", "a_b", "--", "...", "\u00a0", "e\u0301", "🙂", "they're"]
TEXT = "".join(random.choice(WORDS) + random.choice([" ", " ", " ", "  ", "\n", "\n\n", "\t", ", ", "'s ", "   "]) for _ in range(1200))
TEXTS = [
    "Hello world! It's 12:34, isn't it?  Two  blanks\n\n\nand lines \t\r\n  ", "a  b   c    ", " leading", "'sat 'tis I'LL don't'd", "x\u00a0y\u3000z \u2028 w\u0085v",
    "naïve café 日本語テキスト ١٢٣ Ⅷ ½ ﬁ 🙂👍🏽 e\u0301", "<|end|>a<|end|><|end|> b <|endless|>c<tool>d</tool>", "\x00\x01\x7f\u200b\ufeff", "", " ", "\n", "aaaaaaaaaaaaaaaaaaaaaaaa" * 4,
    "1234567890 12 ٣4", TEXT[:900],
]


def trained(pre_tokenizer, size, post=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if post:
        tokenizer.post_processor = post
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                              show_progress=False, special_tokens=["<|end|>"]))
    tokenizer.add_special_tokens(["<|endless|>", "<|end|><|end|>"])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=True), AddedToken("</tool>", normalized=False)])
    return tokenizer


def case(tokenizer):
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    return {"file": json.loads(tokenizer.to_str()), "tokens": encoded,
            "decoded": [tokenizer.decode(ids, skip_special_tokens=False) for ids in encoded]}


byte_level = pre_tokenizers.ByteLevel
plain = trained(byte_level(add_prefix_space=False), 420, processors.ByteLevel(trim_offsets=False))
whole = json.loads(plain.to_str())
whole["model"]["ignore_merges"] = True
whole["model"]["vocab"]["Ġthexyz"] = max(plain.get_vocab().values()) + 1  # a word that no merges make
whole["model"]["merges"] = [pair if isinstance(pair, list) else pair.split(" ") for pair in whole["model"]["merges"]]
TEXTS.append("in the thexyz there")
cut = byte_level(add_prefix_space=False, use_regex=True).pre_tokenize_str
points = [point for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]
letters = [point for point in points if len(cut("a" + chr(point))) == 1]
numbers = [point for point in points if len(cut("1" + chr(point))) == 1]
golden = {
    "texts": TEXTS,
    "plain": case(plain),
    "prefix space": case(trained(byte_level(add_prefix_space=True), 330)),
    "digits": case(trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(add_prefix_space=False)]), 330)),
    "whole words": case(Tokenizer.from_str(json.dumps(whole))),
    "letters": [len(letters), sum(letters)], "numbers": [len(numbers), sum(numbers)],
}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n")
