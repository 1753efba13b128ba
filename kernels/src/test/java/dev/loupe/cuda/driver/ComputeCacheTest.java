package dev.loupe.cuda.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.loupe.cuda.emulator.ChildJvm;
import dev.loupe.cuda.emulator.Emulator;
import dev.loupe.cuda.emulator.OnDevice;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the driver keeps what it compiles. */
class ComputeCacheTest {
  /** No folder can be made in it, not even by root. */
  private static final String NO_HOME = "/dev/null";

  private static final ComputeCache AS_IT_IS = new ComputeCache(null, true);
  private static final ComputeCache NOWHERE = new ComputeCache(null, false);

  @TempDir private Path folder;
  private final Map<String, String> env = new HashMap<>();

  private ComputeCache choose() {
    return ComputeCache.choose(env::get, "Linux", "?");
  }

  @Test
  void leavesWhatWorks() {
    env.put("HOME", folder.toString());
    env.put("LOUPE_CACHE", folder.resolve("own").toString());
    assertEquals(AS_IT_IS, choose());
    assertTrue(Files.notExists(folder.resolve("own")) && Files.notExists(folder.resolve(".nv")));
    env.put("HOME", NO_HOME);
    env.put("CUDA_CACHE_PATH", "/elsewhere");
    assertEquals(AS_IT_IS, choose(), "the user's own choice");
    env.remove("CUDA_CACHE_PATH");
    assertEquals(AS_IT_IS, ComputeCache.choose(env::get, "Windows 11", "?"));
    env.put("CUDA_CACHE_DISABLE", "1");
    assertEquals(NOWHERE, choose(), "the user wants none");
  }

  @Test
  void takesOursWhereHomeCannotBeWritten() throws Exception {
    Path own = folder.resolve("own");
    env.put("LOUPE_CACHE", own.toString());
    ComputeCache expected = new ComputeCache(own.resolve("ComputeCache"), true);
    assertEquals(expected, choose(), "no HOME");
    assertTrue(Files.isDirectory(own.resolve("ComputeCache")));
    for (String home : new String[] {NO_HOME, "", "\0"}) {
      env.put("HOME", home);
      assertEquals(expected, choose(), home);
    }
    Files.writeString(folder.resolve(".nv"), "a file, not a folder");
    env.put("HOME", folder.toString());
    assertEquals(expected, choose(), "a file in its place");
  }

  @Test
  void doesWithoutWhereNothingCanBeWritten() {
    env.put("HOME", NO_HOME);
    assertEquals(NOWHERE, choose(), "no folder for such things");
    env.put("LOUPE_CACHE", NO_HOME + "/cache");
    assertEquals(NOWHERE, choose());
  }

  /** Starts the driver and tells what it found in its environment. */
  static final class Start {
    private Start() {}

    public static void main(String[] args) {
      CudaDriver.find();
      System.out.println("cache " + Emulator.cachePath() + ", kept " + ComputeCache.isKept());
    }
  }

  @Test
  @OnDevice(emulated = true)
  void theDriverHearsOfIt() throws Exception {
    assumeTrue(!System.getProperty("os.name").startsWith("Windows"), "has no HOME");
    Path own = folder.resolve("own");
    Map<String, String> child = new HashMap<>();
    child.put("LOUPE_CACHE", own.toString());
    child.put("HOME", folder.toString());
    child.put("CUDA_CACHE_PATH", "");
    assertEquals("cache , kept true\nexit 0\n", ChildJvm.run(Start.class, child, folder));
    child.put("HOME", NO_HOME);
    assertEquals(
        "cache " + own.resolve("ComputeCache") + ", kept true\nexit 0\n",
        ChildJvm.run(Start.class, child, folder));
    child.put("LOUPE_CACHE", NO_HOME + "/cache");
    assertEquals("cache , kept false\nexit 0\n", ChildJvm.run(Start.class, child, folder));
  }
}
