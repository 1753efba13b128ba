package dev.loupe.interpret.trace;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.generate.Prompt;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.Random;

/**
 * A model with a circuit of three heads and small random weights everywhere else: one head copies
 * each token to the place after it; one reads where the token of its own place was copied to, and
 * brings along what stands there; one copies that to what the logits are made of. Which heads those
 * are is chosen by a seed.
 *
 * @param folder where it lies
 * @param members the three, in their order
 * @param ids a text of different tokens, and one of them again
 * @param answer the token that followed it
 */
record PlantedModel(Path folder, List<Part> members, List<Integer> ids, int answer) {
  private static final int LAYERS = 3;
  private static final int HEADS = 5;
  private static final int D = 24;
  private static final int C = HEADS * D;
  private static final int POSITIONS = 23;
  private static final int V = 19;
  private static final int TEXT = 13;

  // where in the residual stream things stand
  private static final int PLACE = V;
  private static final int BEFORE = V + POSITIONS;
  private static final int FOUND = BEFORE + V;
  private static final int SAID = FOUND + V;

  Prompt prompt() {
    return Prompt.ids(ids.stream().mapToInt(Integer::intValue).toArray());
  }

  static PlantedModel in(Path folder, long seed) throws IOException {
    Gpt2Config config =
        new Gpt2Config(
            LAYERS, HEADS, C, POSITIONS, V, 7, Activation.GELU_NEW, 1e-5f, true, false, 0, -1);
    RandomCheckpoint.write(
        config,
        seed,
        folder,
        new RandomCheckpoint.Layout(DType.F32, true, false, false),
        Progress.NONE);
    Random random = new Random(seed);
    List<Part> members = new ArrayList<>();
    for (int layer = 0; layer < LAYERS; layer++) {
      members.add(new Part(layer, random.nextInt(HEADS)));
    }
    Weights weights = new Weights(folder.resolve("model.safetensors"));
    weights.fill("wte.weight", 0);
    weights.fill("wpe.weight", 0);
    weights.fill("lm_head.weight", 0);
    for (int v = 0; v < V; v++) {
      weights.set("wte.weight", v, v, C, 1);
      weights.set("lm_head.weight", v, SAID + v, C, 3);
    }
    for (int t = 0; t < POSITIONS; t++) {
      weights.set("wpe.weight", t, PLACE + t, C, 1);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
      for (String name : List.of("attn.c_proj", "mlp.c_proj")) {
        weights.shrink("h.%d.%s.weight".formatted(layer, name));
        weights.shrink("h.%d.%s.bias".formatted(layer, name));
      }
    }
    weights.head(members.get(0), PLACE, PLACE, -1, POSITIONS, 0, BEFORE);
    weights.head(members.get(1), 0, BEFORE, 0, V, 0, FOUND);
    weights.head(members.get(2), PLACE, PLACE, 0, POSITIONS, FOUND, SAID);
    weights.save();
    List<Integer> tokens = new ArrayList<>();
    for (int v = 0; v < V; v++) {
      tokens.add(v);
    }
    Collections.shuffle(tokens, random);
    int again =
        6 + random.nextInt(TEXT - 8); // late: places with nothing to find bring early tokens
    int[] ids = new int[TEXT + 1];
    for (int t = 0; t < TEXT; t++) {
      ids[t] = tokens.get(t);
    }
    ids[TEXT] = ids[again];
    return new PlantedModel(folder, members, Arrays.stream(ids).boxed().toList(), ids[again + 1]);
  }

  /** The paths of the circuit. */
  List<Circuit.Link> links() {
    return List.of(
        new Circuit.Link(members.get(0), Optional.of(members.get(1)), Via.KEY),
        new Circuit.Link(members.get(1), Optional.of(members.get(2)), Via.VALUE),
        new Circuit.Link(members.get(2), Optional.empty(), Via.LOGIT));
  }

  /** A safetensors file of f32 in memory. */
  private static final class Weights {
    private final Path file;
    private final ByteBuffer bytes;
    private final JsonObject header;
    private final int start;

    Weights(Path file) throws IOException {
      this.file = file;
      bytes = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
      int length = (int) bytes.getLong(0);
      start = 8 + length;
      header =
          JsonParser.parseString(new String(bytes.array(), 8, length, UTF_8)).getAsJsonObject();
    }

    private JsonArray place(String name) {
      return header.getAsJsonObject(name).getAsJsonArray("data_offsets");
    }

    void fill(String name, float value) {
      for (int at = place(name).get(0).getAsInt(); at < place(name).get(1).getAsInt(); at += 4) {
        bytes.putFloat(start + at, value);
      }
    }

    /** A tenth of what it was. */
    void shrink(String name) {
      for (int at = place(name).get(0).getAsInt(); at < place(name).get(1).getAsInt(); at += 4) {
        bytes.putFloat(start + at, bytes.getFloat(start + at) / 10);
      }
    }

    void set(String name, int row, int column, int columns, float value) {
      bytes.putFloat(start + place(name).get(0).getAsInt() + 4 * (row * columns + column), value);
    }

    /**
     * Makes a head compare and copy.
     *
     * @param query where in the residual stream its queries are
     * @param key where its keys are
     * @param shift how far below a query's number its key's is
     * @param n how many numbers there are
     * @param from where its values are: V of them
     * @param to where they go
     */
    void head(Part head, int query, int key, int shift, int n, int from, int to) {
      String attn = "h.%d.attn.c_attn.weight".formatted(head.layer());
      String proj = "h.%d.attn.c_proj.weight".formatted(head.layer());
      int first = head.head() * D;
      for (int d = 0; d < D; d++) {
        for (int c = 0; c < C; c++) {
          for (int part = 0; part < 3; part++) {
            set(attn, c, part * C + first + d, 3 * C, 0);
          }
          set(proj, first + d, c, C, 0);
        }
      }
      for (int i = 0; i < n; i++) {
        set(attn, query + i, first + i, 3 * C, 1.2f);
        if (i - shift < n) {
          set(attn, key + i, C + first + i - shift, 3 * C, 1.2f);
        }
      }
      for (int v = 0; v < V; v++) {
        set(attn, from + v, 2 * C + first + v, 3 * C, 0.4f);
        set(proj, first + v, to + v, C, 0.4f);
      }
    }

    void save() throws IOException {
      Files.write(file, bytes.array());
    }
  }
}
