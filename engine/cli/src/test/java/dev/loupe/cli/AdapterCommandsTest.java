package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** LoRA adapters and end tokens, from the command line. */
class AdapterCommandsTest {
  private static final Object[] RUN = {"ROMEO:", "-n", 12, "--greedy", "--backend", "cpu", "-q"};

  @TempDir Path folder;
  private TinyModel model;
  private Path adapter;

  @BeforeEach
  void make() throws IOException {
    model = TinyModel.in(folder.resolve("model"));
    adapter = Files.createDirectory(folder.resolve("adapter"));
    adapter(model.folder().toString());
  }

  /** Of rank 2, on the first matrix of the first layer, strong enough to be seen. */
  private void adapter(String base) throws IOException {
    JsonObject config = new JsonObject();
    config.addProperty("peft_type", "LORA");
    config.addProperty("base_model_name_or_path", base);
    config.addProperty("r", 2);
    config.addProperty("lora_alpha", 4);
    Files.writeString(adapter.resolve("adapter_config.json"), config.toString());
    String module = "base_model.model.transformer.h.0.mlp.c_fc.lora_";
    String header =
        """
        {"%sA.weight": {"dtype": "F32", "shape": [2, 64], "data_offsets": [0, 512]},
         "%sB.weight": {"dtype": "F32", "shape": [256, 2], "data_offsets": [512, 2560]}}"""
            .formatted(module, module);
    byte[] text = header.getBytes(StandardCharsets.UTF_8);
    ByteBuffer bytes = ByteBuffer.allocate(8 + text.length + 2560).order(ByteOrder.LITTLE_ENDIAN);
    bytes.putLong(text.length).put(text);
    Random random = new Random(3);
    while (bytes.hasRemaining()) {
      bytes.putFloat((float) random.nextGaussian());
    }
    Files.write(adapter.resolve("adapter_model.safetensors"), bytes.array());
  }

  private static String generate(Object... given) {
    Object[] all = new Object[1 + given.length + RUN.length];
    all[0] = "generate";
    System.arraycopy(given, 0, all, 1, given.length);
    System.arraycopy(RUN, 0, all, 1 + given.length, RUN.length);
    return Ran.loupe(all).well().out();
  }

  @Test
  void everyWayToNameAnAdapter() throws IOException {
    String plain = generate("-m", model.folder());
    String merged = generate("-m", model.folder(), "--adapter", adapter);
    assertNotEquals(plain, merged);
    assertEquals(merged, generate("-m", adapter), "by its folder, whose base is a path");
    Path written = folder.resolve("merged");
    Ran convert = Ran.loupe("weights", "convert", adapter, written, "--dtype", "f32").well();
    assertTrue(convert.err().contains("1 matrices changed"), convert.err());
    assertEquals(merged, generate("-m", written));
    String verified = Ran.loupe("weights", "verify", adapter, written).well().out();
    assertTrue(verified.startsWith("equal: 40 tensors"), verified);
    Ran inspected = Ran.loupe("weights", "inspect", model.folder(), "--adapter", adapter).well();
    assertTrue(inspected.out().contains("adapter_model.safetensors"), inspected.out());
  }

  /** Words that only the adapter's tokenizer has come from there. */
  @Test
  void theAdaptersTokenizerComesFirst() throws IOException {
    Files.writeString(adapter.resolve("tokenizer.json"), "{}");
    Ran.loupe("generate", "-m", adapter, "x")
        .refused(ExitCode.BAD_INPUT, "adapter", "tokenizer.json");
  }

  @Test
  void aBaseThatIsNotHere() throws IOException {
    adapter("nobody/has-this");
    Ran.loupe("generate", "-m", adapter, "x")
        .refused(
            ExitCode.BAD_INPUT, "adapter of nobody/has-this", "loupe weights pull", "--adapter");
    Ran.loupe("generate", "-m", model.folder(), "--adapter", model.folder(), "x")
        .refused(ExitCode.BAD_INPUT, "is no adapter");
  }

  private JsonObject run() {
    Object[] words = {
      "generate", "-m", model.folder(), "ROMEO:", "-n", 12, "--greedy", "--backend", "cpu", "--json"
    };
    return Ran.loupe(words).well().json().getFirst();
  }

  private static String finish(JsonObject run) {
    return run.getAsJsonObject("generation").get("finish_reason").getAsString();
  }

  /** Every end token counts, those of generation_config.json before those of config.json. */
  @Test
  void everyEndTokenStops() throws IOException {
    JsonObject free = run();
    assertEquals("length", finish(free));
    int prompt = free.get("prompt_len").getAsInt();
    int third =
        free.getAsJsonArray("tokens").get(prompt + 2).getAsJsonObject().get("id").getAsInt();
    int unused = third == 1000 ? 1001 : 1000;
    Path generation = model.folder().resolve("generation_config.json");
    Files.writeString(generation, "{\"eos_token_id\": [%d, %d]}".formatted(unused, third));
    JsonObject stopped = run();
    assertEquals("eos", finish(stopped));
    assertTrue(stopped.getAsJsonArray("tokens").size() <= prompt + 3, stopped.toString());
    model.config("\"eos_token_id\": 1023", "\"eos_token_id\": [%d, %d]".formatted(unused, third));
    Files.writeString(generation, "{\"eos_token_id\": %d}".formatted(unused));
    assertEquals("length", finish(run()), "generation_config.json takes precedence");
    Files.delete(generation);
    assertEquals("eos", finish(run()));
    String json = Ran.loupe("weights", "inspect", model.folder(), "--json", "-q").well().out();
    JsonObject inspected = JsonParser.parseString(json).getAsJsonObject();
    assertEquals("config.json", inspected.get("eos_from").getAsString());
    assertFalse(inspected.getAsJsonObject("config").get("eos_token_id").isJsonPrimitive());
  }

  /** What no kernel computes runs on the CPU, which is said, and not on a GPU that is asked for. */
  @Test
  void activationsWithoutKernels() throws IOException {
    model.config("gelu_new", "mish");
    Ran ran = Ran.loupe("generate", "-m", model.folder(), "ROMEO:", "-n", 2, "--json").well();
    assertEquals(
        "mish", ran.json().getFirst().getAsJsonObject("model").get("activation").getAsString());
    model.config("mish", "gelu_fast");
    assertEquals("gelu_new", run().getAsJsonObject("model").get("activation").getAsString());
  }
}
