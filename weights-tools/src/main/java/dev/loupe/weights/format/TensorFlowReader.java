package dev.loupe.weights.format;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.stream.JsonReader;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * OpenAI's GPT-2 as it was published: a TensorFlow checkpoint, whose matrices are [1, in, out].
 *
 * <pre>
 * model.ckpt.index                  a {@link SortedTable}: "" holds the header, every other key the
 *                                   place of the tensor with that name, both a {@link TensorBundle}'s
 * model.ckpt.data-00000-of-00001    the tensors, row-major
 * checkpoint                        text: model_checkpoint_path: "model.ckpt"
 * hparams.json                      {"n_vocab": V, "n_ctx": T, "n_embd": C, "n_head": H, "n_layer": L}
 * </pre>
 *
 * <p>Source: src/model.py of openai/gpt-2.
 */
public final class TensorFlowReader implements CheckpointReader {
  public static final String INDEX = ".index";
  private static final String HPARAMS = "hparams.json";
  private static final List<String> HPARAMS_FIELDS =
      List.of("n_vocab", "n_ctx", "n_embd", "n_head", "n_layer");
  private static final byte[] POINTER = "model_checkpoint_path:".getBytes(US_ASCII);
  private static final Pattern POINTED =
      Pattern.compile("model_checkpoint_path: *\"(?:[^\"\\\\\n]*/)?([^\"\\\\/\n]+)\"");
  private static final int MAX_TEXT = 1 << 20;

  private static final Pattern IN_LAYER =
      Pattern.compile(
          "model/h([0-9]+)/(ln_1|ln_2|attn/c_attn|attn/c_proj|mlp/c_fc|mlp/c_proj)/([gbw])");

  private static final Map<String, String> OUTSIDE =
      Map.of(
          "model/wte", "wte.weight",
          "model/wpe", "wpe.weight",
          "model/ln_f/g", "ln_f.weight",
          "model/ln_f/b", "ln_f.bias");

  @Override
  public List<String> fileNames() {
    return List.of("model.ckpt" + INDEX, "checkpoint");
  }

  @Override
  public boolean recognises(InputFile file) {
    return SortedTable.recognises(file) || file.startsWith(POINTER);
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    InputFile index = file.startsWith(POINTER) ? pointed(file, arena) : file;
    Gpt2Config config = hparams(index.path().resolveSibling(HPARAMS));
    List<SortedTable.Row> rows = SortedTable.read(index);
    if (rows.isEmpty() || !rows.getFirst().key().isEmpty()) {
      throw new CheckpointException(index.path() + " has no header: there is no key \"\"");
    }
    TensorBundle.Header header = TensorBundle.Header.read(index, rows.getFirst());
    Map<Integer, InputFile> shards = new TreeMap<>();
    List<Entry> tensors = new ArrayList<>();
    for (SortedTable.Row row : rows.subList(1, rows.size())) {
      TensorBundle.Tensor tensor = TensorBundle.Tensor.read(index, row);
      int shard = tensor.shard();
      if (shard < 0 || shard >= header.shards()) {
        throw new CheckpointException(
            "%s: %s is in data file %d of %d"
                .formatted(index.path(), StrictJson.shown(tensor.name()), shard, header.shards()));
      }
      if (!shards.containsKey(shard)) {
        shards.put(shard, InputFile.map(header.dataFile(index.path(), shard), arena));
      }
      tensors.add(tensor.entry(shards.get(shard), header.order(), name(tensor.name())));
    }
    return new Contents(config, tensors, List.copyOf(shards.values()));
  }

  /** {@code model/h3/attn/c_attn/w} is {@code h.3.attn.c_attn.weight}; others stay as they are. */
  public static String name(String stored) {
    Matcher layer = IN_LAYER.matcher(stored);
    if (!layer.matches()) {
      return OUTSIDE.getOrDefault(stored, stored);
    }
    return "h.%s.%s.%s"
        .formatted(
            layer.group(1),
            layer.group(2).replace('/', '.'),
            layer.group(3).equals("b") ? "bias" : "weight");
  }

  /** The index that the file {@code checkpoint} names: the latest that its trainer has written. */
  private static InputFile pointed(InputFile pointer, Arena arena) throws CheckpointException {
    Path path = pointer.path();
    long size = pointer.bytes().byteSize();
    if (size <= MAX_TEXT) {
      // of a path on the trainer's machine only the last name means something here
      Matcher named =
          POINTED.matcher(new String(pointer.bytes().toArray(ValueLayout.JAVA_BYTE), UTF_8));
      if (named.lookingAt() && InputFile.isFileName(named.group(1))) {
        InputFile index = InputFile.map(path.resolveSibling(named.group(1) + INDEX), arena);
        if (SortedTable.recognises(index)) {
          return index;
        }
        throw new CheckpointException(
            index.path() + " is no index of a TensorFlow checkpoint, or it is cut short");
      }
    }
    throw new CheckpointException(path + " names no checkpoint: give its .index file");
  }

  private static Gpt2Config hparams(Path file) throws CheckpointException {
    InputFile hparams = InputFile.read(file, MAX_TEXT, "a model's hparams");
    try {
      int[] values = hparams.json(in -> hparams(in, file));
      return Gpt2Config.openAi(
          values[4], values[3], values[2], values[1], values[0], Gpt2Config.END_OF_TEXT);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException(file + ": " + e.getMessage(), e);
    }
  }

  /** The values of {@link #HPARAMS_FIELDS}, in that order. */
  private static int[] hparams(JsonReader in, Path file) throws IOException {
    int[] values = new int[HPARAMS_FIELDS.size()];
    Arrays.fill(values, -1);
    StrictJson.beginObject(in, file.toString());
    while (in.hasNext()) {
      String name = in.nextName();
      int field = HPARAMS_FIELDS.indexOf(name);
      if (field < 0) {
        in.skipValue();
        continue;
      }
      if (values[field] >= 0) {
        throw new CheckpointException("%s gives %s twice".formatted(file, name));
      }
      long value = StrictJson.natural(in, "%s: %s".formatted(file, name));
      values[field] = (int) Math.min(value, Integer.MAX_VALUE);
    }
    in.endObject();
    for (int field = 0; field < values.length; field++) {
      if (values[field] < 0) {
        throw new CheckpointException("%s has no %s".formatted(file, HPARAMS_FIELDS.get(field)));
      }
    }
    return values;
  }
}
