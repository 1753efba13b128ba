package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.SplittableRandom;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Damages small sound models at random: whatever comes, opening works or says why not. */
class CheckpointFuzzTest {
  private static final int ROUNDS = 2000;

  @TempDir Path temporary;

  @Test
  void damagedWeights() throws IOException {
    Path folder =
        ModelFolder.random(
            temporary.resolve("m"),
            ModelFolder.LEAST,
            new RandomCheckpoint.Layout(DType.F16, true, true, true));
    damage(folder, ModelFolder.weights(folder), 1);
  }

  @Test
  void damagedConfig() throws IOException {
    Path folder =
        ModelFolder.random(
            temporary.resolve("m"), ModelFolder.LEAST, RandomCheckpoint.Layout.PLAIN);
    damage(folder, ModelFolder.config(folder), 2);
  }

  @Test
  void damagedIndex() throws IOException {
    Path folder =
        ModelFolder.random(
            temporary.resolve("m"), ModelFolder.LEAST, RandomCheckpoint.Layout.PLAIN);
    ModelFolder.shard(folder, 2);
    damage(folder, ModelFolder.index(folder), 3);
  }

  @Test
  void damagedLlmC() throws IOException {
    Path file = temporary.resolve("m.bin");
    try (Checkpoint model = Checkpoint.open(leastLlmC())) {
      LlmCFile.write(model, true, 0, file);
    }
    damage(file, file, 4);
  }

  @Test
  void damagedLlmCTokenizer() throws IOException {
    Path file = temporary.resolve("m.bin");
    try (Checkpoint model = Checkpoint.open(leastLlmC())) {
      LlmCFile.write(model, true, 0, file);
    }
    List<byte[]> tokens = new ArrayList<>();
    for (String token : List.of("a", "b", "ab", "aab", "abb", "<|endoftext|>")) {
      tokens.add(token.getBytes(US_ASCII));
    }
    damage(file, LlmCFile.writeTokenizer(tokens, 2, temporary.resolve("gpt2_tokenizer.bin")), 5);
  }

  /** In every second one the checksums are right, so that what they cover is read. */
  @Test
  void damagedTensorFlowIndex() throws IOException {
    try (Checkpoint model = Checkpoint.open(leastLlmC())) {
      Path folder = TensorFlowFiles.write(model, 2, false, temporary.resolve("tf"));
      TensorFlowFiles files = TensorFlowFiles.of(model, 2, false);
      Path index = Files.write(folder.resolve("model.ckpt.index"), files.index());
      SplittableRandom coin = new SplittableRandom(6);
      damage(folder, index, 6, bytes -> coin.nextBoolean() ? files.sealed(bytes) : bytes);
    }
  }

  @Test
  void damagedHparams() throws IOException {
    try (Checkpoint model = Checkpoint.open(leastLlmC())) {
      Path folder = TensorFlowFiles.write(model, 1, false, temporary.resolve("tf"));
      damage(folder, folder.resolve("hparams.json"), 7);
    }
  }

  private Path leastLlmC() throws IOException {
    return ModelFolder.random(
        temporary.resolve("m"),
        ModelFolder.LEAST,
        new RandomCheckpoint.Layout(DType.BF16, false, false, false));
  }

  private static void damage(Path folder, Path file, long seed) throws IOException {
    damage(folder, file, seed, bytes -> bytes);
  }

  /**
   * @param finish does to a damaged file what an attacker would
   */
  private static void damage(Path folder, Path file, long seed, UnaryOperator<byte[]> finish)
      throws IOException {
    byte[] sound = Files.readAllBytes(file);
    SplittableRandom random = new SplittableRandom(seed);
    int opened = 0;
    for (int round = 0; round < ROUNDS; round++) {
      byte[] bytes = finish.apply(damaged(sound, random));
      Files.write(file, bytes);
      try (Checkpoint checkpoint = Checkpoint.open(folder)) {
        // what opens must be readable to the last element
        for (StoredTensor tensor : checkpoint.tensors()) {
          tensor.read(0, new float[(int) tensor.elements()], 0, (int) tensor.elements());
        }
        opened++;
      } catch (CheckpointException e) {
        Refusal.assertOneSentence(String.valueOf(e.getMessage()));
      } catch (RuntimeException | Error e) {
        throw new AssertionError("seed " + seed + " round " + round, e);
      }
    }
    assertTrue(opened > 0 && opened < ROUNDS, "opened " + opened);
  }

  private static byte[] damaged(byte[] sound, SplittableRandom random) {
    byte[] bytes = sound.clone();
    switch (random.nextInt(6)) {
      case 0 -> {
        return Arrays.copyOf(bytes, random.nextInt(bytes.length));
      }
      case 1 -> bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
      case 2 -> bytes[random.nextInt(bytes.length)] = (byte) random.nextInt(256);
      case 3 -> { // a digit for a digit, which the grammar doesn't notice
        int at = random.nextInt(bytes.length);
        while (bytes[at] < '0' || bytes[at] > '9') {
          at = (at + 1) % bytes.length;
        }
        bytes[at] = (byte) ('0' + random.nextInt(10));
      }
      case 4 -> { // a stretch goes elsewhere
        int n = 1 + random.nextInt(Math.min(40, bytes.length - 1));
        System.arraycopy(
            sound, random.nextInt(bytes.length - n), bytes, random.nextInt(bytes.length - n), n);
      }
      default -> {
        byte[] signs = "{}[]\",:-+.eE0\\\n".getBytes(US_ASCII);
        bytes[random.nextInt(bytes.length)] = signs[random.nextInt(signs.length)];
      }
    }
    return bytes;
  }
}
