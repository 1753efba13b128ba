package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.ggml.GgmlReaderTest;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Damages small sound models at random: whatever comes, opening works or says why not. */
class CheckpointFuzzTest {
  private static final int ROUNDS =
      Integer.getInteger("fuzz.rounds", 500); // four times as many with the sweeps

  private static final ThreadMXBean THREAD =
      (ThreadMXBean) ManagementFactory.getThreadMXBean(); // Sun's counts bytes, too

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
    byte[] sound = Files.readAllBytes(file);
    damage(file, file, 4);
    Files.write(file, sound);
    damage(file, file, 10, 32.0 / sound.length, bytes -> bytes); // where the numbers are
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
      damage(folder, index, 6, 1, bytes -> coin.nextBoolean() ? files.sealed(bytes) : bytes);
    }
  }

  @Test
  void damagedHparams() throws IOException {
    try (Checkpoint model = Checkpoint.open(leastLlmC())) {
      Path folder = TensorFlowFiles.write(model, 1, false, temporary.resolve("tf"));
      damage(folder, folder.resolve("hparams.json"), 7);
    }
  }

  @Test
  void damagedGguf() throws IOException {
    GgufModel model = new GgufModel(2, 32, 32, 3, 5, true);
    model
        .file
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", "a", "b", "ab", "<|endoftext|>", "[PAD4]")
        .ints("tokenizer.ggml.token_type", 1, 1, 1, 3, 5)
        .texts("tokenizer.ggml.merges", "a b")
        .u32("tokenizer.ggml.eos_token_id", 3);
    var _ = model.file.pair("x", 9).number(9, 4).number(1, 8).number(8, 4).number(0, 8);
    Path file = Files.write(temporary.resolve("m.gguf"), model.file.bytes());
    damage(file, file, 8);
    var _ = Files.write(file, model.file.bytes());
    damage(file, file, 9, 0.1, bytes -> bytes); // where the numbers are
  }

  @Test
  void damagedGgml() throws IOException {
    GgufModel model = new GgufModel(2, 32, 128, 5, 7, false);
    byte[] sound = new GgmlReaderTest.File(model, 32, 2002).make();
    Path file = Files.write(temporary.resolve("m.bin"), sound);
    damage(file, file, 10);
  }

  /** The pickle comes first in the file: the first part of it is damaged more than the rest. */
  @Test
  void damagedPyTorch() throws IOException {
    Path folder = leastTorch();
    Path file = folder.resolve("pytorch_model.bin");
    Map<SafetensorsWriter.Entry, byte[]> tensors = TorchWriter.tensors(temporary.resolve("e"));
    TorchWriter zip = new TorchWriter(2, TorchWriter.Lie.TRANSPOSED, true);
    byte[] sound = zip.zip("a/", PickleWriter.orderedDict(zip.stateDict(tensors)));
    Files.write(file, sound);
    damage(folder, file, 20);
    Files.write(file, sound);
    damage(folder, file, 21, 0.3, bytes -> bytes);
    TorchWriter old = new TorchWriter(4, TorchWriter.Lie.SPACED, false);
    sound = old.old(PickleWriter.orderedDict(old.stateDict(tensors)));
    Files.write(file, sound);
    damage(folder, file, 22, 0.8, bytes -> bytes);
  }

  @Test
  void damagedNanoGpt() throws IOException {
    leastTorch();
    Path folder = Files.createDirectory(temporary.resolve("nano"));
    TorchWriter writer = new TorchWriter(4, TorchWriter.Lie.DENSE, false);
    Map<String, Object> root =
        NanoGptFile.root(
            TorchWriter.tensors(temporary.resolve("e")),
            writer,
            "_orig_mod.",
            false,
            ModelFolder.LEAST);
    byte[] sound = writer.zip("a/", root);
    Path file = Files.write(folder.resolve("ckpt.pt"), sound);
    damage(folder, file, 23, 0.5, bytes -> bytes);
    Files.write(file, sound);
    Object meta = Map.of("vocab_size", 3, "itos", Map.of(0, "a", 1, "b", 2, "é"));
    damage(folder, Files.write(folder.resolve("meta.pkl"), PickleWriter.of(4, meta)), 24);
  }

  /** Makes a model in folder e, and a folder that has its config only. */
  private Path leastTorch() throws IOException {
    Path model =
        ModelFolder.random(
            temporary.resolve("e"),
            ModelFolder.LEAST,
            new RandomCheckpoint.Layout(DType.F16, false, true, false));
    Path folder = Files.createDirectory(temporary.resolve("t"));
    Files.copy(ModelFolder.config(model), ModelFolder.config(folder));
    return folder;
  }

  private Path leastLlmC() throws IOException {
    return ModelFolder.random(
        temporary.resolve("m"),
        ModelFolder.LEAST,
        new RandomCheckpoint.Layout(DType.BF16, false, false, false));
  }

  private void damage(Path source, Path file, long seed) throws IOException {
    damage(source, file, seed, 1, bytes -> bytes);
  }

  /**
   * @param part of the file, from its beginning, that is damaged
   * @param finish does to a damaged file what an attacker would
   */
  private void damage(Path source, Path file, long seed, double part, UnaryOperator<byte[]> finish)
      throws IOException {
    byte[] sound = Files.readAllBytes(file);
    SplittableRandom random = new SplittableRandom(seed);
    int opened = 0;
    for (int round = 0; round < ROUNDS; round++) {
      Files.delete(file); // to write over an old file takes ext4 milliseconds
      Files.write(file, finish.apply(damaged(sound, (int) (part * sound.length), random)));
      String what = "seed " + seed + " round " + round;
      long bytes = THREAD.getCurrentThreadAllocatedBytes();
      long nanos = THREAD.getCurrentThreadCpuTime();
      try (Checkpoint checkpoint = Checkpoint.open(source)) {
        // what opens must be readable to the last element
        for (StoredTensor tensor : checkpoint.tensors()) {
          readAll(tensor);
        }
        opened++;
      } catch (CheckpointException e) {
        String message = String.valueOf(e.getMessage());
        Refusal.assertOneSentence(message);
        assertTrue(message.contains(temporary.toString()), message);
      } catch (RuntimeException | Error e) {
        throw new AssertionError(what, e);
      }
      assertTrue(THREAD.getCurrentThreadAllocatedBytes() - bytes < 256 << 20, what);
      assertTrue(THREAD.getCurrentThreadCpuTime() - nanos < 1_000_000_000, what);
    }
    assertTrue(opened > 0 && opened < ROUNDS, "opened " + opened);
  }

  private static void readAll(StoredTensor tensor) {
    int n = (int) tensor.elements();
    try (Arena arena = Arena.ofConfined()) {
      tensor.dtype().decode(tensor.data(arena), 0, new float[n], 0, n);
    }
    tensor.read(n / 2, new float[n], 0, n - n / 2);
  }

  private static byte[] damaged(byte[] sound, int range, SplittableRandom random) {
    byte[] bytes = sound.clone();
    int at = random.nextInt(range);
    switch (random.nextInt(7)) {
      case 0 -> {
        return Arrays.copyOf(bytes, at);
      }
      case 1 -> bytes[at] ^= (byte) (1 << random.nextInt(8));
      case 2 -> bytes[at] = (byte) random.nextInt(256);
      case 3 -> { // a digit for a digit, which the grammar doesn't notice
        int digit = at;
        while (bytes[digit] < '0' || bytes[digit] > '9') {
          digit = (digit + 1) % bytes.length;
        }
        bytes[digit] = (byte) ('0' + random.nextInt(10));
      }
      case 4 -> { // a stretch goes elsewhere
        int n = 1 + random.nextInt(Math.min(40, bytes.length - 1));
        System.arraycopy(
            sound, random.nextInt(bytes.length - n), bytes, Math.min(at, bytes.length - n), n);
      }
      case 5 -> { // a length grows, or falls below 0
        ByteBuffer numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        long number = random.nextLong() >>> random.nextInt(64);
        if (random.nextBoolean()) {
          numbers.putInt(Math.min(at, bytes.length - 4), (int) number);
        } else {
          numbers.putLong(Math.min(at, bytes.length - 8), number);
        }
      }
      default -> {
        byte[] signs = "{}[]\",:-+.eE0\\\n".getBytes(US_ASCII);
        bytes[at] = signs[random.nextInt(signs.length)];
      }
    }
    return bytes;
  }
}
