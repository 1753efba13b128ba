package dev.loupe.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import dev.loupe.EmulatedGpu;
import dev.loupe.OnGpu;
import dev.loupe.TinyModel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What the program says and leaves where the GPU can't be used, is too small, or fails. */
@OnGpu
class CudaCommandsTest {
  private static final int ECC = 214; // CUDA_ERROR_ECC_UNCORRECTABLE
  private static final int IN_THE_PROMPT = 5; // kernels
  private static final int WHILE_WRITING = 180; // the device is some steps ahead of the text

  @TempDir static Path folder;
  @TempDir Path files;
  private static Path model;

  @BeforeAll
  static void model() throws Exception {
    EmulatedGpu.require();
    model = TinyModel.in(folder).folder();
    generate("-n", 1).well(); // the first use runs more kernels than later ones
  }

  @BeforeEach
  @AfterEach
  void nothingIsLeft() {
    EmulatedGpu.reset();
    assertEquals(0, EmulatedGpu.liveAllocations());
  }

  private static Ran generate(Object... more) {
    Object[] given = {"generate", "ROMEO:", "-m", model, "--backend", "cuda", "--greedy"};
    Object[] all = Arrays.copyOf(given, given.length + more.length);
    System.arraycopy(more, 0, all, given.length, more.length);
    return Ran.loupe(all);
  }

  @Test
  void aGpuThatIsNotThere() {
    generate("--device", 9).refused(4, "there is no GPU 9: this machine has 1");
  }

  @Test
  void kernelsThatAreNamed() {
    generate("--kernels", "linear=v9").refused(2, "linear has no variant v9; it has v1, v2, v3");
    generate("--kernels", "linaer=v1").refused(2, "no family of kernels called linaer", "linear");
    generate("--kernels", "linear").refused(2, "--kernels");
    String text = generate("-n", 3).well().out();
    assertEquals(text, generate("-n", 3, "--kernels", "linear=v2,attention=v1").well().out());
  }

  @Test
  void aDriverThatIsTooOld() {
    EmulatedGpu.card(-1, 11_080, -1, -1);
    generate()
        .refused(
            4, "driver is too old", "CUDA 11.8", "12.0 is needed", "update it to 525 or newer");
  }

  @Test
  void aCardThatIsTooOld() {
    EmulatedGpu.card(70, -1, -1, -1);
    generate().refused(4, "compute capability 7.0", "7.5 or newer");
  }

  /** What keeps a GPU from being of use before a text has begun, and the words that say it. */
  private static Map<String, Runnable> causes() {
    Map<String, Runnable> causes = new LinkedHashMap<>();
    causes.put("driver is too old", () -> EmulatedGpu.card(-1, 11_080, -1, -1));
    causes.put("compute capability 7.0", () -> EmulatedGpu.card(70, -1, -1, -1));
    causes.put("the model needs", () -> EmulatedGpu.card(-1, -1, -1, 1 << 20));
    causes.put("context failed: out of memory", () -> EmulatedGpu.memory(200L << 20));
    causes.put("computes wrongly", () -> EmulatedGpu.kernelsOff("pointwise_convert"));
    causes.put("uncorrectable ECC", () -> EmulatedGpu.failKernel(0, ECC));
    causes.put("CUDA_ERROR_LAUNCH_FAILED", () -> EmulatedGpu.failKernel(3, 719)); // of the weights
    return causes;
  }

  @Test
  void autoSaysWhyItTakesTheCpu() {
    String text = Ran.loupe("generate", "ROMEO:", "-m", model, "--greedy", "-n", 2).well().out();
    causes()
        .forEach(
            (words, cause) -> {
              EmulatedGpu.reset();
              cause.run();
              Ran auto = Ran.loupe("generate", "ROMEO:", "-m", model, "--greedy", "-n", 2).well();
              assertEquals(text, auto.out(), words);
              String said = auto.err();
              assertTrue(said.contains("not the GPU: ") && said.contains(words), said);
              EmulatedGpu.reset();
              cause.run();
              Ran asked = generate("-n", 2);
              assertTrue(
                  asked.code() == (words.contains("memory") || words.contains("needs") ? 5 : 4),
                  asked.err());
              assertTrue(asked.err().contains(words), asked.err());
              assertEquals("", asked.out());
            });
  }

  /** At any call: before the text has begun, the CPU writes it; later, the run says so and ends. */
  @Test
  void aCardThatDisappears() {
    String text = Ran.loupe("generate", "ROMEO:", "-m", model, "--greedy", "-n", 2).well().out();
    int byTheCpu = 0;
    int ended = 0;
    for (long calls = 0; calls < 1 << 20; calls += 1 + calls) {
      EmulatedGpu.reset();
      EmulatedGpu.loseCard(calls, 999);
      Ran auto = Ran.loupe("generate", "ROMEO:", "-m", model, "--greedy", "-n", 2);
      if (auto.err().contains("not the GPU: ")) {
        assertEquals(0, auto.code(), auto.err());
        assertEquals(text, auto.out());
        assertTrue(auto.err().contains("CUDA_ERROR_UNKNOWN"), auto.err());
        byTheCpu++;
      } else if (auto.code() != 0) {
        assertEquals(4, auto.code(), auto.err());
        assertTrue(text.startsWith(auto.out().strip()), auto.out());
        String last = auto.err().lines().toList().getLast();
        assertTrue(last.startsWith("loupe: ") && last.contains("CUDA_ERROR_UNKNOWN"), auto.err());
        ended++;
      } else {
        break; // all calls of the run were made
      }
    }
    assertTrue(byTheCpu > 3 && ended > 0, byTheCpu + " by the CPU, " + ended + " ended");
  }

  /**
   * Ids come from the card, but for the first: one that nobody may choose is its error and not a
   * token. What was written before it stays.
   */
  @Test
  void anIdThatIsNone() {
    String first = generate("-n", 1).well().out().strip();
    EmulatedGpu.kernelsOff("step_advance");
    Ran ran = generate("-n", 3);
    assertEquals(4, ran.code(), ran.err());
    assertEquals(first, ran.out().strip());
    String last = ran.err().lines().toList().getLast();
    assertTrue(last.startsWith("loupe: the GPU computes wrongly: it chose token -1 of "), last);
    assertTrue(last.contains("--backend cpu"), last);
  }

  @Test
  void aModelThatDoesNotFit() {
    EmulatedGpu.card(-1, -1, -1, 1 << 20);
    assertTable(generate("-n", 3), "the model needs", "f16 weights (", "--dtype", "3 layers, f32");
  }

  @Test
  void aRunThatDoesNotFit() {
    EmulatedGpu.card(-1, -1, -1, (20 << 20));
    Ran ran = generate("-n", 100, "--samples", 400);
    assertTable(ran, "the run needs", "fewer samples", "KV cache of 400 x 10");
  }

  private static void assertTable(Ran ran, String... words) {
    assertEquals(5, ran.code(), ran.err());
    assertEquals("", ran.out());
    for (String word : words) {
      assertTrue(ran.err().contains(word), () -> "no <" + word + "> in " + ran.err());
    }
    assertTrue(ran.err().startsWith("loupe: out of GPU memory: "), ran.err());
    List<String> lines = ran.err().lines().toList();
    assertTrue(lines.size() > 3, ran.err());
    for (String line : lines.subList(1, lines.size())) {
      assertTrue(line.matches(" +[0-9.]+ (bytes|.iB)  .*"), line);
    }
  }

  @Test
  void aDriverThatRunsOutLater() {
    EmulatedGpu.failAllocation(3);
    generate("-n", 3).refused(5, "out of GPU memory: ", "are free");
  }

  @Test
  void aGpuThatFailsInThePrompt() throws Exception {
    EmulatedGpu.failKernel(IN_THE_PROMPT, ECC);
    generate("-n", 3, "--attention", files.resolve("run.npz")).refused(4, "ECC");
    assertEquals(List.of(), Ran.names(files), "no file of nothing");
  }

  @Test
  void aGpuThatFailsWhileWritingLeavesTheText() {
    String whole = generate("-n", 30).well().out();
    EmulatedGpu.failKernel(WHILE_WRITING, ECC);
    Ran ran = generate("-n", 30);
    assertEquals(4, ran.code(), ran.err());
    assertFalse(ran.out().isEmpty());
    assertTrue(whole.startsWith(ran.out()) && !whole.equals(ran.out()), ran.out());
    String last = ran.err().lines().toList().getLast();
    assertTrue(last.startsWith("loupe: ") && last.contains("ECC"), ran.err());
  }

  @Test
  void aGpuThatFailsWhileWritingLeavesTheFiles() throws Exception {
    Path maps = files.resolve("run.npz");
    EmulatedGpu.failKernel(WHILE_WRITING, ECC);
    Ran ran = generate("-n", 30, "--json", "--attention", maps);
    assertEquals(4, ran.code(), ran.err());
    JsonObject run = ran.json().getFirst();
    assertEquals("error", run.getAsJsonObject("generation").get("finish_reason").getAsString());
    int written = run.getAsJsonArray("tokens").size() - run.get("prompt_len").getAsInt();
    assertTrue(written > 0 && written < 30, written + " tokens");
    assertTrue(Files.size(maps) > 0);
    assertEquals(List.of("run.npz"), Ran.names(files));
  }
}
