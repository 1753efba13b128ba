package dev.loupe.weights;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.format.SafetensorsWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Writes what nanoGPT's train.py saves, from its text. */
public final class NanoGptFile {
  private NanoGptFile() {}

  /** The model as one of nanoGPT, which must have an MLP of 4 C. */
  public static void write(Checkpoint model, Path file) throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> root =
        root(TorchWriter.tensors(model), writer, "_orig_mod.", true, model.config());
    Files.write(file, writer.zip("ckpt/", root));
  }

  /** The {@code meta.pkl} of a data set of these characters. */
  public static void writeMeta(String characters, Path file) throws IOException {
    Map<Integer, String> itos = new LinkedHashMap<>();
    Map<String, Integer> stoi = new LinkedHashMap<>();
    for (int c : characters.codePoints().toArray()) {
      stoi.put(Character.toString(c), itos.size());
      itos.put(itos.size(), Character.toString(c));
    }
    Object meta = Map.of("vocab_size", itos.size(), "itos", itos, "stoi", stoi);
    Files.write(file, PickleWriter.of(4, meta));
  }

  /** The dict that train.py saves; the names of tensors start with {@code transformer.} */
  public static Map<String, Object> root(
      Map<SafetensorsWriter.Entry, byte[]> model,
      TorchWriter writer,
      String prefix,
      boolean bias,
      Gpt2Config config) {
    Map<String, Object> tensors = new LinkedHashMap<>();
    model.forEach(
        (entry, data) -> {
          boolean linear = entry.name().matches(".*\\.(attn|mlp)\\..*weight");
          if (linear) { // [in, out] to [out, in]
            data = transposed(data, entry);
            entry =
                new SafetensorsWriter.Entry(entry.name(), entry.dtype(), entry.shape().reversed());
          }
          if (bias || !entry.name().endsWith(".bias")) {
            tensors.put(prefix + entry.name(), writer.tensor(entry, data));
          }
        });
    tensors.put(prefix + "lm_head.weight", tensors.get(prefix + "transformer.wte.weight"));
    Map<String, Object> arguments = new LinkedHashMap<>();
    arguments.put("n_layer", config.nLayer());
    arguments.put("n_head", config.nHead());
    arguments.put("n_embd", config.nEmbd());
    arguments.put("block_size", config.nPositions());
    arguments.put("bias", bias);
    arguments.put("vocab_size", config.vocabSize());
    arguments.put("dropout", 0.0);
    Map<String, Object> root = new LinkedHashMap<>();
    root.put("model", PickleWriter.orderedDict(tensors));
    Map<Integer, Object> state =
        Map.of(0, Map.of("step", 2000, "exp_avg", tensors.get(prefix + "transformer.wte.weight")));
    root.put(
        "optimizer",
        Map.of(
            "state",
            state,
            "param_groups",
            PickleWriter.list(
                Map.of("lr", 6e-4, "betas", List.of(0.9, 0.95), "params", List.of(0)))));
    root.put("model_args", arguments);
    root.put("iter_num", 2000);
    root.put(
        "config", Map.of("dataset", "shakespeare_char", "compile", true, "init_from", "scratch"));
    return root;
  }

  private static byte[] transposed(byte[] data, SafetensorsWriter.Entry entry) {
    int rows = entry.shape().getFirst().intValue();
    int columns = entry.shape().getLast().intValue();
    int size = entry.dtype().bytes();
    byte[] to = new byte[data.length];
    for (int r = 0; r < rows; r++) {
      for (int c = 0; c < columns; c++) {
        System.arraycopy(data, (r * columns + c) * size, to, (c * rows + r) * size, size);
      }
    }
    return to;
  }
}
