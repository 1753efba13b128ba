package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is no model, or half of one, is refused with the reason. */
class CheckpointRefusalsTest {
  @TempDir Path temporary;

  private void refused(Path source, Object... words) {
    Refusal.of(() -> Checkpoint.open(source).close(), words);
  }

  @Test
  void refusesBrokenShards() throws IOException {
    Path folder = ModelFolder.shard(ModelFolder.odd(temporary), 2);
    Path index = ModelFolder.index(folder);
    String sound = Files.readString(index);

    ModelFolder.replace(index, "\"wte.weight\":", "\"wxe.weight\":");
    refused(folder, ModelFolder.shardName(0), "has no wxe.weight", index.getFileName());
    for (String name :
        List.of(
            "../" + ModelFolder.shardName(0), "/etc/passwd", "..", ".", "", "a\\\\b", "a\\u0000")) {
      Files.writeString(index, sound.replace(ModelFolder.shardName(0), name));
      refused(folder, index, "not the name of a file beside it");
    }
    for (String text :
        List.of(
            "{\"weight_map\": []}",
            "{\"weight_map\": {\"a\": 1}}",
            "{\"weight_map\": {}, \"weight_map\": {}}",
            "{\"weight_map\": {\"a\": \"b\"}",
            "{}")) {
      Files.writeString(index, text);
      refused(folder, index, text.equals("{}") ? "has no weight_map" : "");
    }
    Files.writeString(index, "{\"weight_map\": {}}");
    refused(folder, "no tensor wte.weight", "no weights at all");

    Files.writeString(index, sound);
    Files.delete(folder.resolve(ModelFolder.shardName(1)));
    refused(folder, folder.resolve(ModelFolder.shardName(1)), "does not exist");
    Files.writeString(folder.resolve(ModelFolder.shardName(1)), "version https://git-lfs");
    refused(folder, folder.resolve(ModelFolder.shardName(1)), "git lfs pull");
    Files.delete(ModelFolder.config(folder));
    refused(folder, ModelFolder.config(folder), "does not exist");
  }

  @Test
  void aConfigIsNoModel() {
    refused(
        ModelFolder.config(CheckpointTest.DEMO),
        ModelFolder.config(CheckpointTest.DEMO),
        "no index",
        "give the model's folder");
  }

  @Test
  void saysWhatItLookedFor() throws IOException {
    Path nowhere = temporary.resolve("nowhere");
    refused(nowhere, nowhere, "does not exist", "config.json", "model.safetensors");
    Path empty = Files.createDirectory(temporary.resolve("empty"));
    refused(empty, empty, "no model.safetensors or model.safetensors.index.json");
    Path folder = ModelFolder.odd(temporary);
    Files.delete(ModelFolder.config(folder));
    refused(folder, ModelFolder.config(folder), "does not exist");
    Files.createDirectory(ModelFolder.config(folder));
    refused(folder, ModelFolder.config(folder), "not a regular file");
  }

  @Test
  void refusesFilesThatCannotBeRead() throws IOException {
    Path folder = ModelFolder.odd(temporary);
    assertTrue(ModelFolder.weights(folder).toFile().setReadable(false));
    assumeFalse(Files.isReadable(ModelFolder.weights(folder)), "this user may read anything");
    refused(folder, ModelFolder.weights(folder), "permission denied");
  }

  @Test
  void aTruncatedFileSaysSo() throws IOException {
    Path file = ModelFolder.weights(ModelFolder.odd(temporary));
    byte[] bytes = Files.readAllBytes(file);
    Files.write(file, java.util.Arrays.copyOf(bytes, bytes.length - 1));
    refused(file, file, "cut short", "download it again");
  }

  @Test
  void refusesAMissingTensor() throws IOException {
    Path folder = ModelFolder.odd(temporary);
    ModelFolder.rewrite(folder, t -> ModelFolder.take(t, "h.1.mlp.c_fc.bias"));
    refused(folder, ModelFolder.weights(folder), "h.1.mlp.c_fc.bias", "n_layer 2");
  }

  @Test
  void refusesMoreLayersThanTheConfigHas() throws IOException {
    Path folder = ModelFolder.odd(temporary);
    ModelFolder.replace(ModelFolder.config(folder), "\"n_layer\": 2", "\"n_layer\": 1");
    refused(folder, ModelFolder.weights(folder), "h.1.ln_1.weight", "n_layer 1");
  }

  @ParameterizedTest
  @CsvSource({
    "h.0.attn.c_attn.weight, 150, 50",
    "h.1.mlp.c_fc.weight, 70, 50",
    "h.1.mlp.c_proj.weight, 50, 70",
    "wte.weight, 50, 37"
  })
  void refusesTransposedMatrices(String name, long rows, long columns) throws IOException {
    Path folder = ModelFolder.odd(temporary);
    ModelFolder.rewrite(folder, t -> ModelFolder.reshape(t, name, List.of(rows, columns)));
    refused(folder, name, "looks like [out, in]", rows, columns);
  }

  @ParameterizedTest
  @CsvSource({
    "wte.weight, 38, vocab_size 37",
    "wte.weight, 36, vocab_size 37",
    "wpe.weight, 12, n_positions 11"
  })
  void refusesTablesThatTheConfigContradicts(String name, long rows, String config)
      throws IOException {
    Path folder = ModelFolder.odd(temporary);
    ModelFolder.rewrite(folder, t -> ModelFolder.reshape(t, name, List.of(rows, 50L)));
    refused(folder, ModelFolder.weights(folder), name + " has " + rows + " rows", config);
  }

  @Test
  void refusesOtherShapes() throws IOException {
    Path folder = ModelFolder.odd(temporary);
    ModelFolder.rewrite(folder, t -> ModelFolder.reshape(t, "ln_f.bias", List.of(1L, 50L)));
    refused(folder, "ln_f.bias is [1, 50]", "[50]");
    Path head =
        ModelFolder.random(
            temporary.resolve("head"),
            ModelFolder.ODD,
            new RandomCheckpoint.Layout(DType.F32, true, false, false));
    ModelFolder.rewrite(head, t -> ModelFolder.reshape(t, "lm_head.weight", List.of(36L, 50L)));
    refused(head, "lm_head.weight is [36, 50]", "[37, 50]");
  }

  @Test
  void otherTypesMatterOnlyWhereTheyAreNeeded() throws IOException {
    Path folder =
        ModelFolder.random(
            temporary.resolve("m"),
            ModelFolder.ODD,
            new RandomCheckpoint.Layout(DType.F16, false, false, true));
    byte[] sound = Files.readAllBytes(ModelFolder.weights(folder));
    String mask = "\"h.0.attn.bias\":{\"dtype\":\"F16\"";
    patch(folder, sound, mask, mask.replace("F16", "I16"));
    Checkpoint.open(folder).close();
    patch(folder, sound, mask, mask.replace("F16", "X99"));
    Checkpoint.open(folder).close();
    String weight = "\"h.0.attn.c_attn.bias\":{\"dtype\":\"F16\"";
    patch(folder, sound, weight, weight.replace("F16", "I16"));
    refused(folder, ModelFolder.weights(folder), "h.0.attn.c_attn.bias", "I16", "BF16");
    patch(folder, sound, weight, weight.replace("F16", "X99"));
    refused(folder, "h.0.attn.c_attn.bias is stored as X99");
  }

  /** Latin-1 maps bytes to characters one to one. */
  private static void patch(Path folder, byte[] sound, String from, String to) throws IOException {
    String text = new String(sound, StandardCharsets.ISO_8859_1);
    assertTrue(text.contains(from));
    Files.write(
        ModelFolder.weights(folder), text.replace(from, to).getBytes(StandardCharsets.ISO_8859_1));
  }

  @Test
  void pipesAreRefusedWithoutWaiting() throws Exception {
    Path pipe = temporary.resolve("pipe");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    refused(pipe, pipe, "not a regular file");
  }

  @Test
  void aNumberThatOverflowsTheHeaderIsNoAddress() throws IOException {
    byte[] bytes =
        ByteBuffer.allocate(24)
            .order(ByteOrder.LITTLE_ENDIAN)
            .putLong(Long.MAX_VALUE - 4)
            .put((byte) '{')
            .array();
    Path file = Files.write(temporary.resolve("m.safetensors"), bytes);
    refused(file, file, "damaged or in another format");
  }
}
