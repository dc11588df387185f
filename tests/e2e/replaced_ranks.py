"""Where the checkpointer replaces ranks, one that is killed does not end the run: the others keep what they have, a new
process takes its place, and what is trained is what would have been."""
import os
import random
import re
import shutil
import signal
import time
import unittest

from support.host import BUILD, SMALL, rows
from support.images import png
from support.ranks import RUN, ReplacingTest

KILLS = int(os.environ.get("TRAINYARD_KILLS", 3))
STEPS = 100 * max(KILLS, 3)
SURVIVES = (RUN.replace('type = "full"', 'type = "cpr"').replace('"5ba"', '"50ba"').replace('eval_interval = "1ep"', 'eval_interval = "4ep"')
            .replace('max_duration = "50ba"', f'max_duration = "{STEPS}ba"'))
RANKS = 4
FAULTY = BUILD / "tests/faulty"
PLACED = (SURVIVES.replace(f'"{STEPS}ba"', '"12ba"').replace('"4ep"', '"6ba"').replace('"50ba"', '"6ba"')
          + '[[hooks]]\ntype = "rank_killer"\nplace = "place"\nrank = {rank}\n')
SWAPPED = (PLACED + '[[hooks]]\nid = "second"\ntype = "rank_killer"\nplace = "second"\nrank = {second}\n'
           '[[swap]]\nat = "7ba"\nslot = "optimizer"\ntype = "adam"\nlr = 0.003\n'
           '[[swap]]\nat = "7ba"\nslot = "hooks.rank_killer"\nplace = "place"\nrank = {rank}\n'
           '[[swap]]\nat = "9ba"\nslot = "model.dropout"\ntype = "standard"\np = 0.4\n')
COMPRESSED = PLACED + '[distributed.compressor]\ntype = "{type}"\nmin_compress_elements = 1\n'

IMAGES = 'type = "image_folder"\npath = "images"\nsize = [8]\nflip = true\ncrop_padding = 2'
PLAIN = (SMALL[:SMALL.index("[model]")] + '[model]\ntype = "mlp"\nlayers = [192, 8, 2]\n[loss]\ntype = "cross_entropy"\n[data]\nworkers = 0\n'
         + IMAGES + '\ntrain = { batch_size = 8, micro_batch_size = 4, shuffle = true }\n'
         + SMALL[SMALL.index("[optimizer]"):].replace('"2ep"', '"6ep"').replace('eval_interval = "1ep"\n', '') + '[checkpoint]\ntype = "cpr"\ninterval = "12ba"\n'
         '[[hooks]]\ntype = "rank_killer"\nplace = "place"\nrank = 1\n')
CACHED = PLAIN.replace(IMAGES, 'type = "cache"\nshard = 4\nof = [{ ' + IMAGES.replace("\n", ", ") + " }]")


class CachedSamples(ReplacingTest):
    """What one rank decoded the others have: an epoch in another order reads no file again."""

    def trained(self, text, place="-"):
        for i in range(32):
            self.write(f"images/{i % 2}/{i:02}.png", png((5 * i, 10, 20)))
        self.write("place", place)
        return self.on(2, text, "--plugins", FAULTY)["digest"]

    def fetched(self):
        """Samples that both ranks fetched, by epoch."""
        logs = [(self.run_folder / f"{folder}run.log").read_text() for folder in ("", "ranks/1/")]
        counts = [[int(each) for each in re.findall(r"train: (\d+) samples fetched", log)] for log in logs]
        return [sum(epoch) for epoch in zip(*counts)]

    def test_two_ranks_fetch_nothing_from_the_second_epoch_on_and_train_as_without_a_cache(self):
        expected = self.trained(PLAIN)
        self.assertEqual(self.trained(CACHED), expected)
        fetched = self.fetched()
        self.assertEqual(len(fetched), 6)
        self.assertGreaterEqual(fetched[0], 32)
        self.assertEqual(fetched[1:], [0, 0, 0, 0, 0])

    def test_a_killed_rank_takes_its_samples_along_and_its_replacement_gives_and_takes_again(self):
        expected = self.trained(PLAIN)
        self.assertEqual(self.trained(CACHED, "after_backward 6"), expected)
        self.assertEqual(len(self.journal(0, "replaced")), 1)
        log = (self.run_folder / "run.log").read_text()
        self.assertLessEqual(log.count("no samples are had from rank 1"), 1)
        fetched = self.fetched()
        print("fetched by epoch:", *fetched)
        self.assertLessEqual(sum(fetched[1:]), 32)  # each of the 16 that were lost once by either rank
        self.assertEqual(fetched[-1], 0)


class ReplacedRanks(ReplacingTest):
    whole = None  # result.json of the run that nobody disturbs

    def undisturbed(self):
        if ReplacedRanks.whole is None:
            ReplacedRanks.whole = self.on(RANKS, SURVIVES)
            shutil.rmtree(self.run_folder)
        return ReplacedRanks.whole

    def test_killed_ranks_are_replaced_and_the_weights_are_those_of_a_run_without_it(self):
        whole = self.undisturbed()
        run = self.going(RANKS, SURVIVES)
        chance, seconds = random.Random(7), []
        for kill in range(KILLS):
            time.sleep(chance.uniform(0.0, 0.3))
            victim = kill % RANKS  # the first one, too, which has the run's folder and the store
            seconds.append(self.kill(run, RANKS, victim))
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 0, said)
        print("resumed after", " ".join(f"{each:.2f}" for each in seconds), "s")
        self.assertLessEqual(max(seconds), 5.0)
        result = self.result()
        self.assertEqual(result["digest"], whole["digest"])
        self.assertEqual(result["steps"], whole["steps"])
        for rank in range(RANKS):
            self.assertEqual(self.journal(rank, "resumed"), [])
        self.assertEqual(said.count("a new process takes its place"), KILLS)

    def test_two_ranks_that_are_killed_at_once_are_replaced(self):
        whole = self.undisturbed()
        run = self.going(RANKS, SURVIVES)
        self.kill(run, RANKS, 0, 2)
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(self.result()["digest"], whole["digest"])

    def test_a_process_that_would_read_other_data_than_the_others_takes_no_place(self):
        text = SURVIVES.replace('type = "synthetic"\nkind = "classification"\nshape = [8]\nclasses = 3', 'type = "csv"\npath = "rows.csv"').replace(
            "size = 72, ", "").replace("size = 32, ", "").replace(f'"{STEPS}ba"', '"1000000ba"')
        self.write("rows.csv", rows(72))
        run = self.going(2, text)
        changed = rows(72).splitlines(keepends=True)
        self.write("rows.csv", "".join([*changed[:-1], "9" + changed[-1][1:]]))
        os.kill(self.ranks_of(run.pid)[1], signal.SIGKILL)
        said = run.communicate(timeout=60)[1]
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("rank 1 reads other data than the other ranks: the file of data.train.path differs (", said)

    def test_a_rank_is_killed_anywhere_in_a_step_and_around_it(self):
        expected = None
        for place in ("-", "before_fetch 7", "after_backward 6", "before_reduce 6", "after_reduce 6", "before_step 6", "after_step 6",
                      "batch_end 6", "eval_start 6", "eval_batch_end 6", "eval_end 6", "safe_point 6", "before_checkpoint 6",
                      "safe_point 5", "before_step 1"):
            for rank in (0, 1) if place in ("after_step 6", "eval_end 6") else (1,):
                with self.subTest(place=place, rank=rank):
                    self.write("place", place)
                    result = self.on(2, PLACED.replace("{rank}", str(rank)), "--plugins", FAULTY)
                    expected = expected or result["digest"]
                    self.assertEqual(result["digest"], expected)
                    self.assertEqual(len(self.journal(1 - rank, "replaced")), int(place != "-"))

    def test_a_rank_that_is_killed_when_the_others_end_leaves_none_waiting(self):
        for place, rank in (("fit_end 12", 0), ("shutdown 12", 0), ("fit_end 12", 1)):
            with self.subTest(place=place, rank=rank):
                shutil.rmtree(self.run_folder, ignore_errors=True)
                self.write("place", place)
                run = self.start("--ranks", 2, "--plugins", FAULTY, text=PLACED.replace("{rank}", str(rank)))
                self.until(lambda: not (self.folder / "place").exists())
                began = time.monotonic()
                said = run.communicate(timeout=120)[1]
                self.assertEqual(run.returncode, 6, said)
                self.assertLess(time.monotonic() - began, 12)

    def test_swaps_and_killed_ranks_in_any_order(self):
        expected = None
        for place, second, rank in (("-", "-", 1), ("after_backward 5", "-", 1), ("before_fetch 8", "-", 0), ("after_step 9", "-", 1),
                                    ("swap_out 7", "-", 1), ("swap_out 7", "-", 0), ("after_backward 11", "-", 0),
                                    ("after_backward 4", "after_reduce 11", 0), ("swap_out 7", "before_step 9", 1)):
            with self.subTest(place=place, second=second, rank=rank):
                self.write("place", place)
                self.write("second", second)
                text = SWAPPED.replace("{rank}", str(rank)).replace("{second}", str(1 - rank))
                result = self.on(2, text, "--plugins", FAULTY)
                expected = expected or result["digest"]
                self.assertEqual(result["digest"], expected)
                kills = (place != "-") + (second != "-")
                told = [len(self.journal(each, "replaced")) for each in range(2)]
                self.assertEqual(max(told), kills)
                swaps = {(line["step"], line["why"].split(":")[0]) for each in range(2) for line in self.journal(each, "swap")}
                self.assertEqual({step for step, _ in swaps}, {7, 9})
                self.assertEqual([self.journal(each, "swap_refused") for each in range(2)], [[], []])
                if rank == 0 and kills:  # its checkpoint is as good as any other
                    longer = self.train(text, "--ranks", 2, "--plugins", FAULTY, "--set", "trainer.max_duration=16ba")
                    self.longer = getattr(self, "longer", longer["digest"])
                    self.assertEqual(longer["digest"], self.longer)

    def test_ranks_that_have_shared_a_learning_rate_do_so_with_a_new_one(self):
        """Also after the rule that may scale it was swapped out."""
        rule = '[[rules]]\ntype = "probe"\nevery = "1ba"\naction = "lr_scale"\nlr_scale = 0.9\n'
        text = PLACED.replace("{rank}", "1") + rule + '[[swap]]\nat = "3ba"\nslot = "rules.probe"\naction = "report"\nwatch = "0ba"\n'
        self.write("place", "-")
        expected = self.on(2, text, "--plugins", FAULTY)["digest"]
        self.write("place", "after_backward 8")
        self.assertEqual(self.on(2, text, "--plugins", FAULTY)["digest"], expected)
        self.assertEqual([line["step"] for line in self.journal(0, "swap")], [3])
        self.assertEqual(len(self.journal(0, "replaced")), 1)

    def test_a_rank_that_is_killed_while_it_prepares_a_swap_is_replaced_and_the_swap_is_made(self):
        run = self.going(2, PLACED.replace("{rank}", "1").replace('"12ba"', '"1000000ba"'), "--plugins", FAULTY)
        self.write("place", "construction")
        self.host("ctl", "small", "swap", "hooks.rank_killer", "rank_killer", "place=place", "rank=1")
        self.host("ctl", "small", "stop")
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual([len(self.journal(rank, "swap")) for rank in range(2)], [1, 1])
        self.assertEqual(self.journal(0, "swap")[0]["step"], self.journal(1, "swap")[0]["step"])
        self.assertEqual(len(self.journal(0, "replaced")), 1)

    def test_a_compressor_that_keeps_nothing_loses_nothing(self):
        text = COMPRESSED.replace("{type}", "fp16").replace("{rank}", "1")
        self.write("place", "-")
        expected = self.on(2, text, "--plugins", FAULTY)["digest"]
        self.write("place", "after_backward 6")
        self.assertEqual(self.on(2, text, "--plugins", FAULTY)["digest"], expected)
        self.assertEqual(self.journal(0, "gradients_lost"), [])

    def test_what_a_compressor_kept_back_of_a_lost_rank_is_lost_and_that_of_the_others_is_not(self):
        for kind, victim in (("topk", 1), ("topk", 0), ("powersgd", 0)):
            with self.subTest(type=kind, victim=victim):
                self.write("place", "after_backward 6")
                self.on(2, COMPRESSED.replace("{type}", kind).replace("{rank}", str(victim)), "--plugins", FAULTY)
                told = self.journal(1 - victim, "gradients_lost")
                self.assertEqual(len(told), 1)
                norms = [float(each) for each in told[0]["why"].rsplit(" of ", 1)[1].split(", ")]
                if kind == "topk":
                    self.assertEqual(norms[victim], 0.0)
                self.assertGreater(norms[1 - victim], 0.0)
                self.assertRegex((self.run_folder / "run.log").read_text(), r"gradients of norm \d+\.\d+ are kept back: the last checkpoint has them")

    def test_where_a_compressor_has_groups_of_ranks_a_killed_one_ends_the_run(self):
        self.write("place", "after_backward 6")
        text = COMPRESSED.replace("{type}", "hitopk").replace("{rank}", "1")
        run = self.start("--ranks", 2, "--plugins", FAULTY, text=text)
        said = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertIn("[distributed.compressor] has groups of ranks", (self.run_folder / "run.log").read_text())

    def test_all_ranks_killed_at_once_end_the_run(self):
        run = self.going(RANKS, SURVIVES)
        for pid in self.ranks_of(run.pid).values():
            os.kill(pid, signal.SIGKILL)
        said = run.communicate(timeout=400)[1]
        self.assertEqual(run.returncode, 6, said)
        self.assertIn("no rank is left that has the state of the run", said)


if __name__ == "__main__":
    unittest.main()
