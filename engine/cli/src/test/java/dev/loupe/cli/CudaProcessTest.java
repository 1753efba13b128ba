package dev.loupe.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.EmulatedGpu;
import dev.loupe.OnGpu;
import dev.loupe.TinyModel;
import dev.loupe.cli.terminal.ExitCode;
import dev.loupe.cuda.selftest.SelfTest;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What only a process of its own can show of the GPU: libraries that do not load, signals. */
@OnGpu
@Timeout(200)
class CudaProcessTest {
  private static final String JCUDA = "jcuda-12.6.0";
  private static final String LIBRARY = "libJCudaDriver-12.6.0-linux-x86_64.so";

  /** A folder where nobody can make files, not even root. */
  private static final List<String> NO_TEMPORARY = List.of("-Djava.io.tmpdir=/proc");

  @TempDir static Path shared;
  @TempDir Path folder;
  private static Path model;
  private Child child;

  @BeforeAll
  static void model() throws Exception {
    EmulatedGpu.require();
    model = TinyModel.in(shared).folder();
  }

  @BeforeEach
  void child() {
    child = new Child(folder);
  }

  private static List<String> generate(List<String> flags, Object... more) {
    Object[] given = {"generate", "ROMEO:", "-m", model, "--greedy"};
    Object[] all = Arrays.copyOf(given, given.length + more.length);
    System.arraycopy(more, 0, all, given.length, more.length);
    return Child.java(Main.class, flags, all);
  }

  /** Where nothing can be unpacked but what the tokenizer needs, which has its place already. */
  private Ran withoutRoomForJCuda(String backend) throws Exception {
    Path cache = Files.createDirectories(folder.resolve("cache"));
    Map<String, String> environment = Map.of("LOUPE_CACHE", cache.toString());
    child.run(generate(List.of(), "-n", 0, "--backend", "cpu"), environment).well();
    Files.deleteIfExists(cache.resolve(JCUDA));
    Files.writeString(cache.resolve(JCUDA), "a file, not a folder");
    return child.run(generate(NO_TEMPORARY, "-n", 2, "--backend", backend), environment);
  }

  @Test
  void jcudaThatCannotBeUnpackedIsSaid() throws Exception {
    withoutRoomForJCuda("cuda")
        .refused(4, LIBRARY + " does not load", "set LOUPE_CACHE to a folder", "--backend cpu");
  }

  @Test
  void jcudaThatCannotBeUnpackedLeavesTheCpu() throws Exception {
    Ran ran = withoutRoomForJCuda("auto");
    assertEquals(0, ran.code(), ran.err());
    assertFalse(ran.out().isEmpty());
    assertTrue(ran.err().contains("not the GPU: JCuda's native library " + LIBRARY), ran.err());
  }

  /** A folder that lies before the jars, with one of the compiled kernels in it, cut. */
  @Test
  void kernelsThatAreDamagedLeaveTheCpu() throws Exception {
    String name = "dev/loupe/cuda/images/layernorm.sm_90a-13.cubin.xz";
    Path file = folder.resolve("damaged").resolve(name);
    Files.createDirectories(file.getParent());
    try (InputStream whole = SelfTest.class.getResourceAsStream("/" + name)) {
      Files.write(file, Objects.requireNonNull(whole).readNBytes(5000));
    }
    List<String> damaged = List.of("-Xbootclasspath/a:" + folder.resolve("damaged"));
    String why =
        "the compiled kernels of this copy of Loupe are damaged (layernorm.sm_90a-13.cubin.xz: its 5000"
            + " bytes are not those that were packed): build or download it again";
    Map<String, String> environment = Map.of("LOUPE_CACHE", folder.resolve("cache").toString());
    child.run(generate(damaged, "-q", "-n", 2, "--backend", "cuda"), environment).refused(4, why);
    Ran ran = child.run(generate(damaged, "-n", 2), environment);
    assertEquals(0, ran.code(), ran.err());
    assertFalse(ran.out().isEmpty());
    assertTrue(ran.err().contains("not the GPU: " + why), ran.err());
  }

  /** A card that no cubin fits, with a driver of which a part is missing. */
  @Test
  void aDriverWithoutItsCompilerLeavesTheCpu() throws Exception {
    String cache = folder.resolve("cache").toString();
    Map<String, String> environment =
        Map.of("LOUPE_CACHE", cache, "EMU_COMPUTE_CAPABILITY", "87", "EMU_JIT", "0");
    String why = "the driver's compiler, libnvidia-ptxjitcompiler, is not installed";
    child.run(generate(List.of(), "-q", "-n", 2, "--backend", "cuda"), environment).refused(4, why);
    Ran ran = child.run(generate(List.of(), "-n", 2), environment);
    assertEquals(0, ran.code(), ran.err());
    assertFalse(ran.out().isEmpty());
    assertTrue(ran.err().contains("not the GPU: ") && ran.err().contains(why), ran.err());
  }

  /** As large as the right one, but for another processor. */
  @Test
  void aBrokenLibraryInTheCacheIsPassedOver() throws Exception {
    Path cache = cacheWithVerdicts();
    Map<String, String> environment = Map.of("LOUPE_CACHE", cache.toString());
    List<String> generate = generate(List.of(), "-n", 2, "--backend", "cuda");
    String out = child.run(generate, environment).well().out();
    Path library = cache.resolve(JCUDA).resolve(LIBRARY);
    byte[] elf = Files.readAllBytes(library);
    elf[18] = 40; // e_machine: ARM
    Files.write(library, elf);
    assertEquals(out, child.run(generate, environment).well().out());
    child
        .run(generate(NO_TEMPORARY, "-n", 2, "--backend", "cuda"), environment)
        .refused(4, LIBRARY + " does not load", "set LOUPE_CACHE to a folder");
  }

  @Test
  void aMissingJarOfNativesIsNamed() throws Exception {
    for (String backend : List.of("cuda", "auto")) {
      List<String> command = generate(List.of(), "-n", 2, "--backend", backend);
      command.set(
          command.indexOf("-cp") + 1,
          Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
              .filter(jar -> !jar.contains("jcuda-natives"))
              .collect(Collectors.joining(File.pathSeparator)));
      Ran ran = child.run(command, Map.of());
      String why = "JCuda's native library " + LIBRARY + " is missing: add org.jcuda:jcuda-natives";
      if (backend.equals("cuda")) {
        ran.refused(4, why, "to the class path", "--backend cpu");
      } else {
        assertEquals(0, ran.code(), ran.err());
        assertTrue(ran.err().contains("not the GPU: " + why), ran.err());
      }
    }
  }

  /** Without the demo model, which would take the emulator half a minute. */
  private Ran doctor(Map<String, String> environment) throws Exception {
    List<String> flags = List.of("-Dloupe.home=" + folder);
    return child.run(Child.java(Main.class, flags, "doctor"), environment);
  }

  /** A stand-in for cuBLAS 13 with these functions, and the environment in which it is found. */
  private Map<String, String> cublas(String source) throws Exception {
    Path library = folder.resolve("libcublas.so.13");
    Process compiler;
    try {
      compiler =
          new ProcessBuilder("gcc", "-shared", "-fPIC", "-xc", "-", "-o", library.toString())
              .redirectError(ProcessBuilder.Redirect.INHERIT)
              .start();
    } catch (IOException e) {
      return Assumptions.abort("no gcc to make a stand-in for cuBLAS with");
    }
    try (var in = compiler.getOutputStream()) {
      in.write(source.getBytes(UTF_8));
    }
    assertEquals(0, compiler.waitFor());
    Map<String, String> environment = new HashMap<>();
    environment.put("LD_LIBRARY_PATH", System.getenv("LD_LIBRARY_PATH") + ":" + folder);
    return environment;
  }

  /** It starts, and fails ({@code status}) or writes nothing where it should multiply. */
  private static String source(int created, int multiplied) {
    return """
        int cublasCreate_v2(long* handle) { *handle = 1; return %d; }
        int cublasDestroy_v2(long handle) { return 0; }
        int cublasSetStream_v2(long handle, long stream) { return 0; }
        int cublasGetVersion_v2(long handle, int* version) { *version = 130000; return 0; }
        int cublasGemmEx() { return %d; }
        """
        .formatted(created, multiplied);
  }

  @Tag("sweep")
  @Test
  void aBrokenCublasIsSaidOrDoneWithout() throws Exception {
    List<String> asked =
        generate(
            List.of(), "-q", "-n", 3, "--backend", "cuda", "--dtype", "f16", "--gemm", "cublas");
    List<String> auto = generate(List.of(), "-n", 3, "--backend", "cuda", "--dtype", "f16");
    String own = child.run(auto, Map.of()).well().out();
    Map<String, String> why =
        Map.of(
            source(1, 0),
            "cuBLAS failed at starting: CUBLAS_STATUS_NOT_INITIALIZED",
            source(0, 13),
            "cuBLAS failed at a product",
            source(0, 0),
            "cuBLAS multiplies wrongly",
            "int other;",
            "the cuBLAS library has no cublas");
    for (Map.Entry<String, String> broken : why.entrySet()) {
      child.run(asked, cublas(broken.getKey())).refused(4, broken.getValue());
    }
    Map<String, String> environment = cublas(source(0, 13));
    assertEquals(own, child.run(auto, environment).well().out());
    Ran doctor = doctor(environment).well();
    assertTrue(
        doctor.out().contains("does not work, and is not needed: cuBLAS failed at a product"),
        doctor.out());
    for (String family : SelfTest.families()) {
      assertTrue(
          doctor.out().lines().anyMatch(l -> l.matches("  " + family + " +ok: .*")), doctor.out());
    }
  }

  private static Map<String, String> driver(String folder, int version, int computeCapability) {
    return Map.of(
        "LD_LIBRARY_PATH",
        System.getenv("LD_LIBRARY_PATH") + "/" + folder,
        "EMU_DRIVER_VERSION",
        Integer.toString(version),
        "EMU_COMPUTE_CAPABILITY",
        Integer.toString(computeCapability));
  }

  /**
   * With JNI's rules checked, all names of the driver looked up at once, and PTX alone; and on the
   * oldest driver, which lacks what came later and loads no kernel while a graph is recorded.
   */
  @Tag("sweep")
  @Test
  void theTextIsTheSameOnOtherDrivers() throws Exception {
    List<String> command = generate(List.of(), "-n", 8, "--backend", "cuda");
    String text = child.run(command, Map.of()).well().out();
    Map<String, String> strict = new HashMap<>(driver("", 12_080, 121));
    strict.put("LD_BIND_NOW", "1");
    strict.put("EMU_FAULTS", "0");
    List<String> checked = generate(List.of("-Xcheck:jni"), "-n", 8, "--backend", "cuda");
    Ran ran = child.run(checked, strict).well();
    assertEquals(text, ran.out(), "warnings are printed, too");
    assertFalse(ran.err().contains("native method"), ran.err());
    command.addAll(List.of("--layers", "1", "--attention", folder.resolve("a.npz").toString()));
    assertEquals(text, child.run(command, driver("cuda-12.0", 12_000, 80)).well().out());
  }

  @Test
  void aDriverThatLacksFunctionsIsRefusedBeforeItIsCalled() throws Exception {
    List<String> command = generate(List.of(), "-n", 2, "--backend", "cuda");
    child
        .run(command, driver("cuda-11.0", 11_000, 80))
        .refused(4, "driver is too old, it supports CUDA 11.0", "update it to 525 or newer");
    Map<String, String> lies = driver("cuda-11.0", 12_000, 80);
    child
        .run(command, lies)
        .refused(4, "the NVIDIA driver lacks cuGraphInstantiateWithFlags", "525 or newer");
    Ran auto = child.run(generate(List.of(), "-n", 2, "--backend", "auto"), lies).well();
    assertTrue(
        auto.err().contains("not the GPU: no GPU can be used: the NVIDIA driver lacks"),
        auto.err());
  }

  @Tag("sweep")
  @Test
  void theDoctorTellsKernelsThatComputeNothing() throws Exception {
    // an older card has half as many kernels to be tested
    Map<String, String> whole =
        Map.of("LOUPE_CACHE", folder.resolve("cache").toString(), "EMU_COMPUTE_CAPABILITY", "75");
    Map<String, String> off = new HashMap<>(whole);
    off.put("EMU_KERNELS_OFF", "_");
    Ran ran = doctor(off);
    assertEquals(ExitCode.FAILED, ran.code(), ran.out() + ran.err());
    for (String family : SelfTest.families()) {
      assertTrue(
          ran.out().lines().anyMatch(l -> l.matches("  " + family + " +WRONG: .*")), ran.out());
    }
    Ran kept = doctor(whole);
    assertTrue(kept.out().lines().anyMatch(l -> l.matches("  step +WRONG: .*")), kept.out());
    List<String> retest =
        Child.java(Main.class, List.of("-Dloupe.home=" + folder), "doctor", "--retest");
    Ran retested = child.run(retest, whole).well();
    assertTrue(retested.out().lines().anyMatch(l -> l.matches("  step +ok: .*")), retested.out());
  }

  /** What first contact, and then the comparison with the CPU, does about wrong kernels. */
  @Tag("sweep")
  @Test
  void kernelsThatAreWrongLeaveTheTextRight() throws Exception {
    List<String> cuda = generate(List.of(), "-n", 4, "--backend", "cuda");
    Path cache = cacheWithVerdicts();
    Map<String, String> whole = Map.of("LOUPE_CACHE", cache.toString());
    String text = child.run(generate(List.of(), "-n", 4, "--backend", "cpu"), whole).well().out();
    Ran known = child.run(cuda, whole).well();
    assertEquals(text, known.out());
    assertFalse(known.err().contains("first contact"), known.err());
    List<String> cards = new ArrayList<>(verdicts(cache)); // some of other tests' cards

    // f16 was not compared yet, and its kernels were right when they were tested
    List<String> halves = generate(List.of(), "-q", "-n", 4, "--backend", "cuda", "--dtype", "f16");
    child
        .run(halves, broken(cache, "linear_v4_f16"))
        .refused(4, "computes this model otherwise than the CPU", "the verdicts", "were deleted");
    assertEquals(cards.size() - 1, verdicts(cache).size(), "this card is not trusted any more");
    cards.removeAll(verdicts(cache));
    String card = cards.getFirst().replace(".verdicts", "");
    assertTrue(
        Ran.names(cache.resolve("cards")).stream()
            .allMatch(name -> !name.startsWith(card) || name.endsWith(".lock")),
        "nor what was compared on it");

    Ran others = child.run(cuda, broken(cache, "linear_v4", "attention_v3")).well();
    assertTrue(others.err().contains("first contact with"), others.err());
    assertEquals(text, others.out(), "others serve");

    for (String name : Ran.names(cache.resolve("cards"))) {
      Files.delete(cache.resolve("cards").resolve(name));
    }
    String[] all = {"attention_v1", "attention_v2", "attention_v3", "attention_v4", "attention_v5"};
    String why = "no kernel of attention in f32 computes rightly on Loupe CPU emulator (v3 ";
    List<String> auto = generate(List.of(), "-n", 4, "--backend", "auto");
    Ran none = child.run(auto, broken(cache, all)).well();
    assertEquals(text, none.out());
    assertTrue(none.err().contains("not the GPU: " + why), none.err());
    child.run(cuda, broken(cache, all)).refused(4, why);
  }

  private static List<String> verdicts(Path cache) throws IOException {
    return Ran.names(cache.resolve("cards")).stream()
        .filter(name -> name.endsWith(".verdicts"))
        .toList();
  }

  /** A cache of its own, in which first contact was made already. */
  private Path cacheWithVerdicts() throws Exception {
    child.run(generate(List.of(), "-n", 0, "--backend", "cuda"), Map.of()).well();
    Path shared =
        Path.of(Objects.requireNonNull(System.getenv("LOUPE_CACHE"), "LOUPE_CACHE is not set"));
    Path cache = folder.resolve("cache");
    Set<PosixFilePermission> ownerOnly = PosixFilePermissions.fromString("rwx------");
    Files.createDirectory(cache, PosixFilePermissions.asFileAttribute(ownerOnly));
    Path cards = cache.resolve("cards");
    Files.createDirectory(cards, PosixFilePermissions.asFileAttribute(ownerOnly));
    for (String name : Ran.names(shared.resolve("cards"))) {
      if (name.endsWith(".verdicts")) {
        Files.copy(shared.resolve("cards").resolve(name), cards.resolve(name));
      }
    }
    return cache;
  }

  private static Map<String, String> broken(Path cache, String... kernels) {
    String list = Stream.of(kernels).map(name -> name + ":skip").collect(Collectors.joining(","));
    return Map.of("LOUPE_CACHE", cache.toString(), "EMU_BREAK", list);
  }

  @Test
  void anInterruptEndsTheTextAndKeepsItsMaps() throws Exception {
    Child.assumeIsHeard("INT");
    Path made = Files.createDirectory(folder.resolve("made"));
    Process process =
        child.start(
            generate(
                List.of(),
                "-n",
                4000,
                "--overflow",
                "slide",
                "--backend",
                "cuda",
                "--layers",
                1,
                "--heads",
                1,
                "--attention",
                made.resolve("a.json"),
                "--attention",
                made.resolve("a.npz")));
    child.interrupt(process, made, "INT");
  }
}
