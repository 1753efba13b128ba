package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class CudaDriverTest {
  @Test
  void saysWhatIsThereAndNeverFails() {
    CudaDriver driver = CudaDriver.find();
    assertEquals(driver.cards().isEmpty(), !driver.problem().isEmpty(), "a card or a reason");
    assertFalse(driver.summary().isBlank());
  }

  /** JCuda binds a function at its first call, and a driver without it ends the process there. */
  @Test
  void everyFunctionThatIsCalledIsLookedUpAtTheStart() throws Exception {
    Pattern call = Pattern.compile("JCudaDriver(?:\\.|::)(cu[A-Z]\\w*)");
    Map<String, String> otherwise =
        Map.of(
            "cuGraphInstantiate", "cuGraphInstantiateWithFlags",
            "cuModuleLoadDataJIT", "cuModuleLoadDataEx");
    List<String> called = new ArrayList<>();
    try (Stream<Path> sources = Files.walk(Path.of("src/main/java/dev/loupe/cuda"))) {
      for (Path source : sources.filter(Files::isRegularFile).toList()) {
        Matcher matcher = call.matcher(Files.readString(source));
        while (matcher.find()) {
          String function = otherwise.getOrDefault(matcher.group(1), matcher.group(1));
          called.add(function);
          assertTrue(
              DriverFunctions.NAMES.contains(function)
                  || DriverFunctions.NAMES.contains(function + "_v2"),
              "DriverFunctions lacks " + function + " of " + source);
        }
      }
    }
    assertTrue(called.size() > 30, called.toString());
  }

  @Test
  void readsWellWithAndWithoutACard() {
    assertEquals(
        "not found (libcuda.so.1)",
        new CudaDriver(0, List.of(), "not found (libcuda.so.1)").summary());
    assertEquals(
        "CUDA 12.4, NVIDIA H100", new CudaDriver(12040, List.of("NVIDIA H100"), "").summary());
    assertEquals("CUDA 13.0, no card", new CudaDriver(13000, List.of(), "no card").summary());
    assertTrue(new CudaDriver(13000, List.of("A", "B"), "").summary().endsWith("A, B"));
  }
}
