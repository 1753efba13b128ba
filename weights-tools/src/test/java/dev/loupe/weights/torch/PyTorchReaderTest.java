package dev.loupe.weights.torch;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.ModelFolder;
import dev.loupe.weights.PickleWriter;
import dev.loupe.weights.RandomCheckpoint;
import dev.loupe.weights.Refusal;
import dev.loupe.weights.Same;
import dev.loupe.weights.TorchWriter;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.tensor.DType;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.ZipFile;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

public class PyTorchReaderTest {
  @TempDir Path temporary;
  private Path expected = Path.of("");
  private Path folder = Path.of("");

  @BeforeEach
  void model() throws IOException {
    model(DType.F32, true);
  }

  /** One model, twice: as safetensors, and a folder that has its config only. */
  private void model(DType dtype, boolean head) throws IOException {
    expected = Files.createTempDirectory(temporary, "e");
    ModelFolder.random(
        expected, ModelFolder.ODD, new RandomCheckpoint.Layout(dtype, head, true, true));
    folder = Files.createTempDirectory(temporary, "m");
    Files.copy(ModelFolder.config(expected), ModelFolder.config(folder));
  }

  private Path write(byte[] bytes) throws IOException {
    return Files.write(folder.resolve("pytorch_model.bin"), bytes);
  }

  private Map<String, Object> stateDict(TorchWriter writer) throws IOException {
    return writer.stateDict(TorchWriter.tensors(expected));
  }

  private void refused(byte[] bytes, Object... words) throws IOException {
    Path file = write(bytes);
    Refusal.of(() -> Checkpoint.open(folder).close(), words);
    Refusal.of(() -> Checkpoint.open(folder).close(), file.getFileName());
  }

  public static void assertSame(Path expected, Path actual) throws IOException {
    try (Checkpoint a = Checkpoint.open(expected);
        Checkpoint b = Checkpoint.open(actual)) {
      Same.model(a, b);
    }
  }

  @ParameterizedTest
  @CsvSource({
    "zip, F32, 2, DENSE, false",
    "zip, F16, 4, SHARED, false",
    "zip, BF16, 2, TRANSPOSED, false",
    "zip, F64, 4, SPACED, false",
    "zip, F32, 2, DENSE, true",
    "zip, F16, 4, TRANSPOSED, true",
    "zip, F64, 2, SHARED, true",
    "old, F32, 2, DENSE, false",
    "old, BF16, 4, SHARED, false",
    "old, F64, 2, TRANSPOSED, false",
    "old, F16, 2, SPACED, false",
  })
  void everyLayoutHoldsTheSameModel(
      String container, DType dtype, int protocol, TorchWriter.Lie lie, boolean bigEndian)
      throws IOException {
    model(dtype, true);
    TorchWriter writer = new TorchWriter(protocol, lie, bigEndian);
    Object root = PickleWriter.orderedDict(stateDict(writer));
    write(container.equals("zip") ? writer.zip("archive/", root) : writer.old(root));
    assertSame(expected, folder);
  }

  @Test
  void denseTensorsAreViewsOfTheFile() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    write(writer.zip("gpt2/", stateDict(writer)));
    try (Arena arena = Arena.ofConfined();
        Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertTrue(checkpoint.tensor("h.1.mlp.c_fc.weight").data(arena).isMapped());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "a/", "a model/of mine/"})
  void theFolderInTheZipMayHaveAnyName(String name) throws IOException {
    TorchWriter writer = TorchWriter.plain();
    write(writer.zip(name, stateDict(writer)));
    assertSame(expected, folder);
  }

  @Test
  void parametersCountAsTensors() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> dict = stateDict(writer);
    dict.replaceAll(
        (name, tensor) ->
            PickleWriter.call(
                "torch._utils",
                "_rebuild_parameter",
                List.of(tensor, true, PickleWriter.call("collections", "OrderedDict", List.of()))));
    write(writer.zip("a/", dict));
    assertSame(expected, folder);
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "transformer."})
  void aHeadThatIsWteItselfIsTied(String prefix) throws IOException {
    model(DType.F32, false);
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> dict = new LinkedHashMap<>();
    stateDict(writer)
        .forEach((name, tensor) -> dict.put(name.replace("transformer.", prefix), tensor));
    dict.put("lm_head.weight", dict.get(prefix + "wte.weight"));
    write(writer.zip("a/", dict));
    assertSame(expected, folder);
    try (Checkpoint checkpoint = Checkpoint.open(folder)) {
      assertFalse(checkpoint.has("lm_head.weight"));
    }
  }

  @Test
  void valuesOfNoUseArePassedOver() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> dict = stateDict(writer);
    writer.put("mask", new byte[4], 1);
    dict.put(
        "h.0.attn.bias",
        TorchWriter.rebuild(
            TorchWriter.storage("BoolStorage", "mask", 4), 0, List.of(2, 2), List.of(2, 1)));
    dict.put("step", 3_000_000_000L);
    dict.put("loss", 1.5);
    dict.put(
        "numpy", PickleWriter.call("numpy._core.multiarray", "scalar", List.of("dtype", "bytes")));
    dict.put("nested", PickleWriter.list(1, List.of(), "two"));
    write(writer.zip("a/", dict));
    assertSame(expected, folder);
  }

  @Test
  void readsShards() throws IOException {
    List<Map<SafetensorsWriter.Entry, byte[]>> halves =
        List.of(new LinkedHashMap<>(), new LinkedHashMap<>());
    List<String> map = new ArrayList<>();
    int i = 0;
    for (Map.Entry<SafetensorsWriter.Entry, byte[]> tensor :
        TorchWriter.tensors(expected).entrySet()) {
      halves.get(i % 2).put(tensor.getKey(), tensor.getValue());
      map.add("\"%s\": \"shard-%d.bin\"".formatted(tensor.getKey().name(), i % 2));
      i++;
    }
    for (int shard = 0; shard < 2; shard++) {
      TorchWriter writer = TorchWriter.plain();
      Object root = PickleWriter.orderedDict(writer.stateDict(halves.get(shard)));
      Files.write(
          folder.resolve("shard-%d.bin".formatted(shard)),
          shard == 0 ? writer.zip("s/", root) : writer.old(root));
    }
    Files.writeString(
        folder.resolve("pytorch_model.bin.index.json"),
        "{\"metadata\": {}, \"weight_map\": {" + String.join(", ", map) + "}}");
    assertSame(expected, folder);
  }

  @Test
  void readsZip64() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    byte[] plain = writer.zip("a/", stateDict(writer));
    Path file = write(zip64(plain));
    assertSame(expected, folder);
    try (ZipFile independent = new ZipFile(file.toFile())) { // the test's own file is sound
      assertTrue(independent.size() > 30);
    }
  }

  /** The same zip file with all sizes and places in ZIP64 fields. */
  private static byte[] zip64(byte[] plain) {
    ByteBuffer in = ByteBuffer.wrap(plain).order(ByteOrder.LITTLE_ENDIAN);
    int end = plain.length - 22;
    int count = in.getShort(end + 10);
    int central = in.getInt(end + 16);
    ByteBuffer out =
        ByteBuffer.allocate(plain.length + 28 * count + 76).order(ByteOrder.LITTLE_ENDIAN);
    out.put(plain, 0, central);
    for (int at = central, i = 0; i < count; i++) {
      int name = in.getShort(at + 28);
      byte[] entry = Arrays.copyOfRange(plain, at, at + 46 + name);
      ByteBuffer wide = ByteBuffer.wrap(entry).order(ByteOrder.LITTLE_ENDIAN);
      long size = wide.getInt(24);
      long header = wide.getInt(42);
      wide.putInt(20, -1).putInt(24, -1).putInt(42, -1).putShort(30, (short) 28);
      out.put(entry).putShort((short) 1).putShort((short) 24);
      out.putLong(size).putLong(size).putLong(header);
      at += 46 + name;
    }
    int end64 = out.position();
    out.putInt(0x06064b50).putLong(44).putShort((short) 45).putShort((short) 45);
    out.putInt(0).putInt(0).putLong(count).putLong(count).putLong(end64 - central);
    out.putLong(central);
    out.putInt(0x07064b50).putInt(0).putLong(end64).putInt(1);
    out.put(plain, end, 8).putShort((short) -1).putShort((short) -1).putInt(-1).putInt(-1);
    out.putShort((short) 0);
    return Arrays.copyOf(out.array(), out.position());
  }

  @Test
  void refusesWhatIsNotInThere() throws IOException {
    TorchWriter writer = TorchWriter.plain();
    Map<String, Object> dict = stateDict(writer);
    dict.put("extra", writer.view(DType.F32, "99", 0, List.of(1L), List.of(1L)));
    refused(writer.old(dict), "extra", "storage 99");
    dict.remove("extra");
    dict.put("transformer.wpe.weight", writer.view(DType.F32, "99", 0, List.of(1L), List.of(1L)));
    refused(writer.zip("a/", dict), "transformer.wpe.weight", "storage 99");
    refused(writer.old(dict), "no tensor is a view");
    writer.put("98", new byte[4 * 549], 4);
    dict.put(
        "transformer.wpe.weight",
        writer.view(DType.F32, "98", 0, List.of(11L, 50L), List.of(50L, 1L)));
    refused(writer.zip("a/", dict), "transformer.wpe.weight", "549");
    PickleWriter.Pickled longer = TorchWriter.storage("FloatStorage", "98", 550);
    dict.put(
        "transformer.wpe.weight",
        TorchWriter.rebuild(longer, 0, List.of(11L, 50L), List.of(50L, 1L)));
    refused(writer.zip("a/", dict), "transformer.wpe.weight", "550 F32", "2196 bytes");
    // one number for a whole table would make a small file large
    dict.put(
        "transformer.wpe.weight",
        writer.view(DType.F32, "98", 0, List.of(11L, 50L), List.of(0L, 0L)));
    refused(writer.zip("a/", dict), "transformer.wpe.weight", "549");
    dict.put(
        "transformer.wpe.weight",
        writer.view(DType.F32, "98", 0, List.of(1L << 62, 8L), List.of(8L, 1L)));
    refused(writer.zip("a/", dict), "transformer.wpe.weight", "4611686018427387904");
    dict.put(
        "transformer.wpe.weight",
        writer.view(DType.F32, "98", -1, List.of(1L, 1L), List.of(1L, 1L)));
    refused(writer.zip("a/", dict), "transformer.wpe.weight", "-1");
  }

  @Test
  void refusesOtherFiles() throws IOException {
    Map<String, byte[]> files = new LinkedHashMap<>();
    files.put("weights.npy", new byte[9]);
    refused(TorchWriter.zip("", files, false), "no data.pkl");
    files.put("a/data.pkl", PickleWriter.of(2, Map.of()));
    refused(TorchWriter.zip("", files, false), "no dict with the tensors of a GPT-2");
    files.put("a/byteorder", TorchWriter.ascii("middle"));
    refused(TorchWriter.zip("", files, false), "byteorder");
    files.put("a/constants.pkl", PickleWriter.of(2, List.of()));
    refused(TorchWriter.zip("", files, false), "TorchScript");
    files.put("b/data.pkl", PickleWriter.of(2, Map.of()));
    refused(TorchWriter.zip("", files, false), "more than one data.pkl");
    refused(
        TorchWriter.zip("", Map.of("data.pkl", PickleWriter.of(2, Map.of())), true),
        "data.pkl",
        "compressed");
    refused(PickleWriter.of(2, Map.of()), "pickle", "not one that torch.save wrote");
    refused(PickleWriter.of(4, Map.of()), "pickle.dump", "not one that torch.save wrote");
    refused(TorchWriter.plain().zip("a/", List.of(1)), "no dict");
    refused(TorchWriter.plain().zip("a/", Map.of("epoch", 1)), "no dict with the tensors", "epoch");
  }

  @Test
  void refusesCode() throws IOException {
    Object attack = PickleWriter.call("os", "system", List.of("touch /tmp/attacked"));
    refused(TorchWriter.plain().zip("a/", Map.of("x", attack)), "os.system", "byte");
    refused(TorchWriter.plain().old(Map.of("x", attack)), "os.system", "byte");
    Object config = PickleWriter.global("__main__", "GPTConfig");
    refused(TorchWriter.plain().zip("a/", Map.of("config", config)), "__main__.GPTConfig");
  }

  @Test
  void refusesEveryCut() throws IOException {
    for (boolean old : new boolean[] {false, true}) {
      TorchWriter writer = TorchWriter.plain();
      Map<String, Object> dict = stateDict(writer);
      byte[] whole = old ? writer.old(dict) : writer.zip("a/", dict);
      for (int length = 1; length < whole.length; length += 1 + length / 50) {
        refused(Arrays.copyOf(whole, length));
      }
    }
  }
}
