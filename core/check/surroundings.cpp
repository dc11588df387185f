#include "core/check/small_run.hpp"

namespace trainyard::check {

const std::vector<Surroundings>& surroundings() {
  const std::string split = "train = { size = 24, batch_size = 8, shuffle = true }\nval = { size = 8 }\n";
  const auto synthetic = [&](const std::string& what) { return "type = \"synthetic\"\n" + what + split; };
  const auto mlp = [](const std::string& widths) { return "type = \"mlp\"\nlayers = " + widths + "\n"; };
  const std::string cross_entropy = "type = \"cross_entropy\"\n";
  const auto any_shape = [](const std::string& outputs) {
    return "type = \"sequential\"\nlayers = [{ type = \"flatten\" }, { type = \"linear\", out = " + outputs +
           " }]\n";
  };
  const auto classes = [&](const std::string& shape, const std::string& count) {
    return synthetic("kind = \"classification\"\nshape = [" + shape + "]\nclasses = " + count + "\n");
  };
  static const std::vector<Surroundings> all = {
      {"classification", classes("16", "10"), mlp("[16, 8, 10]"), cross_entropy, "[16, 8, 10]"},
      {"two classes", classes("16", "2"), mlp("[16, 8, 1]"), "type = \"bce_with_logits\"\n", "[16, 8, 1]"},
      {"regression", synthetic("kind = \"regression\"\nshape = [16]\n"), mlp("[16, 8, 1]"),
       "type = \"mse\"\n", "[16, 8, 1]"},
      {"images", classes("3, 32, 32", "10"), mlp("[3072, 8, 10]"), cross_entropy, "[3072, 8, 10]"},
      {"language", synthetic("kind = \"language\"\nseq_len = 6\nvocabulary = 9\n"),
       "type = \"gpt\"\nn_layer = 1\nn_head = 2\nd_model = 8\n", cross_entropy, "[9, 8, 9]"},
      {"convolutions", classes("3, 8, 8", "10"),
       "type = \"sequential\"\nlayers = [{ type = \"conv2d\", out = 4, kernel = 3 }, { type = \"dropout\" }, "
       "{ type = \"global_average_pool\" }, { type = \"linear\", out = 10 }]\n",
       cross_entropy, "[192, 8, 10]"},
      {"clicks", "type = \"ctr\"\nrows = [3, 9, 20]\nfeatures = 4\n" + split,
       "type = \"dlrm\"\ndim = 2\nbottom = [4]\ntop = [4]\n", "type = \"bce_with_logits\"\n", "[4, 8, 1]"},
      {"recurrent language", synthetic("kind = \"language\"\nseq_len = 6\nvocabulary = 9\n"),
       "type = \"lstm\"\nn_layer = 1\nembedding = 4\nhidden = 8\n", cross_entropy, "[9, 8, 9]"},
      {"rows of few features",
       "type = \"xc\"\nlayout = \"synthetic\"\nfeatures = 40\nclasses = 10\n"
       "prototype = 6\nown = 4\nnoise = 3\n" +
           split,
       "type = \"slide\"\nhidden = 8\n", cross_entropy + "multi_label = true\n", "[40, 8, 10]"},
      // The edges of a subgraph serve any number of layers; the default of `graph` is for three.
      {"nodes",
       "type = \"graph\"\nlayout = \"synthetic\"\nmode = \"subgraph\"\ndegree = true\n"
       "synthetic = { nodes = 60, edges = 200, features = 16, classes = 10 }\n"
       "train = { batch_size = 8, shuffle = true }\nval = { batch_size = 8 }\nkeep_in = \".\"\n",
       "type = \"sage\"\nlayers = 3\nhidden = 8\n", cross_entropy, "[16, 8, 10]"},
      {"edges",
       "type = \"graph\"\nlayout = \"synthetic\"\ntask = \"edge\"\nnegatives = 3\nfanouts = [3, 3]\n"
       "shares = [0.2, 0.1, 0.7]\nsynthetic = { nodes = 60, edges = 200, features = 16 }\n"
       "train = { batch_size = 8, shuffle = true }\nval = { batch_size = 8 }\n",
       "type = \"sage\"\nhidden = 8\n", "type = \"bce_with_logits\"\n", "[16, 8, 4]"},
      {"features of any shape, two classes", classes("2", "2"), any_shape("2"), cross_entropy, "[2, 8, 2]"},
      {"features of any shape, three classes", classes("2", "3"), any_shape("3"), cross_entropy, "[2, 8, 3]"},
      {"features of any shape, ten classes", classes("2", "10"), any_shape("10"), cross_entropy,
       "[2, 8, 10]"},
      {"features of any shape, a number", synthetic("kind = \"regression\"\nshape = [2]\n"), any_shape("1"),
       "type = \"mse\"\n", "[2, 8, 1]"},
      {"the distribution of a number", synthetic("kind = \"regression\"\nshape = [2]\n"), any_shape("2"),
       "type = \"nll\"\n", "[2, 8, 2]"},
      {"rounds of boosting", classes("16", "10"), "type = \"trees\"\nrow_sample = 0.8\ncolumn_sample = 0.5\n",
       cross_entropy, "[16, 8, 10]", "type = \"boosting\"\n"},
      {"weights that are sums", classes("16", "10"), mlp("[16, 8, 10]"), cross_entropy, "[16, 8, 10]", "",
       "type = \"doped\"\ntarget_cf = 2.0\n"},
  };
  return all;
}

}  // namespace trainyard::check
