package dev.loupe.weights;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.SplittableRandom;
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

  private static void damage(Path folder, Path file, long seed) throws IOException {
    byte[] sound = Files.readAllBytes(file);
    SplittableRandom random = new SplittableRandom(seed);
    int opened = 0;
    for (int round = 0; round < ROUNDS; round++) {
      byte[] bytes = damaged(sound, random);
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
        byte[] signs = "{}[]\",:-+.eE0\\\n".getBytes(java.nio.charset.StandardCharsets.US_ASCII);
        bytes[random.nextInt(bytes.length)] = signs[random.nextInt(signs.length)];
      }
    }
    return bytes;
  }
}
