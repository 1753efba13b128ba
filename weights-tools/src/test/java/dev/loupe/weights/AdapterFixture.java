package dev.loupe.weights;

import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** An adapter that a test writes, beside a small base at random. */
abstract class AdapterFixture {
  static final String FRONT = "base_model.model.transformer.";
  static final int C = ModelFolder.ODD.nEmbd();
  static final int V = ModelFolder.ODD.vocabSize();
  static final int INNER = ModelFolder.ODD.nInner();

  @TempDir Path temporary;
  Path base = Path.of("");
  Path adapter = Path.of("");
  final Map<SafetensorsWriter.Entry, byte[]> tensors = new LinkedHashMap<>();
  final Map<String, float[]> values = new LinkedHashMap<>();
  final SplittableRandom random = new SplittableRandom(11);

  @BeforeEach
  void model() throws IOException {
    base = temporary.resolve("base");
    ModelFolder.random(base, ModelFolder.ODD, RandomCheckpoint.Layout.PLAIN);
    adapter = Files.createDirectory(temporary.resolve("adapter"));
  }

  void put(String name, long... shape) {
    int n = 1;
    for (long extent : shape) {
      n *= (int) extent;
    }
    float[] x = new float[n];
    ByteBuffer bytes = ByteBuffer.allocate(4 * n).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < n; i++) {
      x[i] = (float) random.nextDouble(-1, 1);
      bytes.putFloat(x[i]);
    }
    List<Long> extents = java.util.Arrays.stream(shape).boxed().toList();
    tensors.put(new SafetensorsWriter.Entry(name, DType.F32, extents), bytes.array());
    values.put(name, x);
  }

  void linear(String module, int rank, int in, int out) {
    put(FRONT + module + ".lora_A.weight", rank, in);
    put(FRONT + module + ".lora_B.weight", out, rank);
  }

  void write(String fields) throws IOException {
    ModelFolder.write(adapter.resolve("adapter_model.safetensors"), tensors);
    config(fields);
  }

  void config(String fields) throws IOException {
    Files.writeString(
        adapter.resolve("adapter_config.json"),
        ("{'peft_type': 'LORA', 'base_model_name_or_path': '" + base + "'" + fields + "}")
            .replace('\'', '"'));
  }

  Checkpoint open() throws CheckpointException {
    return Checkpoint.open(base, null, adapter);
  }

  void refused(Object... words) {
    Refusal.of(() -> open().close(), words);
  }
}
