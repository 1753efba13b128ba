package dev.loupe.cuda.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.cuda.CacheFile;
import dev.loupe.cuda.Card;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.cuda.driver.KernelImages;
import dev.loupe.cuda.emulator.ChildJvm;
import dev.loupe.cuda.emulator.OnDevice;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Each first contact takes the emulator seconds, so that a test looks at much of one. */
@OnDevice(emulated = true)
@Timeout(600)
class FirstContactTest {
  @TempDir Path folder;

  /** Prints what first contact says and finds; its argument names what is special. */
  static final class Contact {
    private Contact() {}

    public static void main(String[] args) {
      FirstContact.Listener listener =
          new FirstContact.Listener() {
            @Override
            public void begins(String sentence) {
              System.out.println("begins: " + sentence);
            }
          };
      if (args.length > 0) {
        KernelImages.identity(); // reading resources needs the right one
        System.setProperty("java.home", args[0]);
      }
      try {
        KernelVerdicts verdicts = FirstContact.of(0, listener);
        verdicts.notes().forEach(note -> System.out.println("note: " + note));
        verdicts.families().forEach(f -> System.out.println(f + " " + verdicts.summary(f)));
        System.out.println("wrong: " + verdicts.wrong().size());
      } catch (GpuException e) {
        System.out.println("refused: " + e.getMessage());
      }
    }
  }

  /** Keeps verdicts for the card as a child sees it: this JVM may have loaded a cuBLAS. */
  static final class Keep {
    private Keep() {}

    public static void main(String[] args) throws IOException {
      CacheFile.of(Card.find(0), "verdicts", List.of())
          .write(List.of("right\tattention\tv1\tf32\t"));
    }
  }

  /** An older card has half as many kernels to be tested. */
  private static Map<String, String> olderCard(Path cache, String broken) {
    return Map.of(
        "LOUPE_CACHE", cache.toString(), "EMU_BREAK", broken, "EMU_COMPUTE_CAPABILITY", "75");
  }

  private String contact(Path cache, String broken) throws Exception {
    return ChildJvm.run(
        Contact.class, Map.of("LOUPE_CACHE", cache.toString(), "EMU_BREAK", broken), folder);
  }

  private static Path verdicts(Path cache) throws IOException {
    try (Stream<Path> files = Files.list(cache.resolve("cards"))) {
      return files.filter(f -> f.toString().endsWith(".verdicts")).findFirst().orElseThrow();
    }
  }

  @Test
  void brokenKernelsAreCondemnedAndTheOthersAreRight() throws Exception {
    Path cache = folder.resolve("cache");
    String broken = "embedding_v1_f16:skip,linear_v3_f32:die,attention_v2_f16:700";
    String first = contact(cache, broken);
    assertTrue(first.contains("begins: first contact with Loupe CPU emulator: testing "), first);
    assertTrue(first.contains("embedding WRONG: v1 f16 ("), first);
    assertTrue(first.contains("linear WRONG: v3 f32 (its process ended by signal 6); "), first);
    assertTrue(first.contains("attention WRONG: v2 f16 (fails: "), first);
    assertTrue(first.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), first);
    assertTrue(first.contains("layernorm ok: v1 v2 v3 in f32, f16, bf16\n"), first);
    assertTrue(first.contains("graph ok: replay early in f32"), first);
    assertTrue(first.contains("wrong: 3\n"), first);

    String second = contact(cache, ""); // keeps to what was found
    assertFalse(second.contains("begins"), second);
    assertEquals(first.substring(first.indexOf("weights ")), second);
  }

  @Tag("sweep")
  @Test
  void aChangedFileIsMadeAnewByOneOfTwoProcesses() throws Exception {
    Path cache = folder.resolve("cache");
    assertEquals("exit 0\n", ChildJvm.run(Keep.class, olderCard(cache, ""), folder));
    Path path = verdicts(cache);
    Files.writeString(path, Files.readString(path).replace("v1", "v2"));
    CompletableFuture<String> one = CompletableFuture.supplyAsync(() -> quietly(cache));
    String other = quietly(cache);
    List<String> both = List.of(one.get(), other);
    assertEquals(
        1, both.stream().filter(said -> said.contains("begins: ")).count(), both::toString);
    for (String said : both) {
      assertTrue(said.contains("wrong: 0\n"), said);
    }
    assertTrue(
        both.toString().contains(" is damaged or was changed: the verdicts"), both::toString);
    assertFalse(quietly(cache).contains("note"), "it is whole now");
  }

  private String quietly(Path cache) {
    try {
      return ChildJvm.run(Contact.class, olderCard(cache, ""), folder);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void aCardThatFailsCondemnsNothing() throws Exception {
    Path cache = folder.resolve("cache");
    String said = contact(cache, "weights_repack_f16:214");
    assertTrue(
        said.contains("refused: Loupe CPU emulator could not be tested: ") && said.contains("ECC"),
        said);
    try (Stream<Path> files = Files.list(cache.resolve("cards"))) {
      assertEquals(0, files.filter(f -> !f.toString().endsWith(".lock")).count());
    }
  }

  @Tag("sweep")
  @Test
  void withoutLauncherOrFolderItIsDoneHereAndNow() throws Exception {
    Map<String, String> environment = olderCard(Path.of("/proc/nowhere"), "step_:skip");
    String said = ChildJvm.run(Contact.class, environment, folder, folder.toString());
    assertTrue(
        said.contains(
            "note: the kernels were tested in this process, since this Java has no launcher"),
        said);
    assertTrue(said.contains("note: the verdicts on the kernels can't be kept"), said);
    assertTrue(said.contains("set LOUPE_CACHE to a folder of yours"), said);
    assertTrue(said.contains("step WRONG: advance i32 ("), said);
    assertTrue(said.contains("wrong: 1\n"), said);
  }

  /** Prints what a first contact finds that gives each kernel so many seconds. */
  static final class Impatient {
    private Impatient() {}

    public static void main(String[] args) {
      Card card = Card.find(0);
      Duration step = Duration.ofSeconds(Long.parseLong(args[0]));
      try {
        new FirstContact(0, card, FirstContact.Listener.NONE, step).tried();
      } catch (GpuException e) {
        System.out.println("refused: " + e.getMessage());
      }
    }
  }

  @Tag("sweep")
  @Test
  void kernelsThatHangAreEndedAndTooManyOfThemEndIt() throws Exception {
    String said =
        ChildJvm.run(
            Impatient.class,
            Map.of("LOUPE_CACHE", folder.toString(), "EMU_BREAK", "weights_repack:hang"),
            folder,
            "1");
    assertTrue(said.contains("could not be tested: 3 kernels failed, the last one "), said);
    assertTrue(said.contains(" weights repack bf16 (it did not end within "), said);
  }
}
