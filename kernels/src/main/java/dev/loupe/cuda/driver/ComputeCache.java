package dev.loupe.cuda.driver;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * Where the driver keeps the kernels that it compiles: {@code CUDA_CACHE_PATH}, else {@code
 * .nv/ComputeCache} in the user's home (CUDA Programming Guide, "CUDA Environment Variables").
 * Where that can't be written, as for a service without a home, Loupe's own cache folder takes its
 * place. On Windows, whose driver uses {@code %APPDATA%}, nothing is changed.
 *
 * @param folder to give to the driver; null to leave it as it is
 * @param kept whether it will keep what it compiles
 */
public record ComputeCache(@Nullable Path folder, boolean kept) {
  private static final String VARIABLE = "CUDA_CACHE_PATH";

  private static @Nullable ComputeCache prepared;

  /** Before the driver starts, which reads its environment then; once for a process. */
  static synchronized void prepare() {
    if (prepared == null) {
      ComputeCache choice =
          choose(
              System::getenv,
              System.getProperty("os.name", ""),
              System.getProperty("user.home", ""));
      Path folder = choice.folder();
      prepared =
          folder == null || setVariable(folder.toString()) ? choice : new ComputeCache(null, false);
    }
  }

  /** Whether the driver of this process keeps what it compiles. */
  public static synchronized boolean isKept() {
    return prepared != null && prepared.kept();
  }

  /**
   * @param env gives the value of an environment variable, or null
   * @param os as in the property {@code os.name}
   * @param home the user's home, for {@link LibraryCache#folder}
   */
  static ComputeCache choose(UnaryOperator<@Nullable String> env, String os, String home) {
    if ("1".equals(env.apply("CUDA_CACHE_DISABLE"))) {
      return new ComputeCache(null, false);
    }
    String usual = env.apply("HOME");
    if (os.startsWith("Windows")
        || env.apply(VARIABLE) != null
        || (usual != null && isWritable(usual))) {
      return new ComputeCache(null, true);
    }
    Path own = LibraryCache.folder(env, os, home);
    if (own == null) {
      return new ComputeCache(null, false);
    }
    Path folder = own.resolve("ComputeCache");
    try {
      LibraryCache.createPrivate(folder);
    } catch (IOException e) {
      return new ComputeCache(null, false); // each start compiles anew, and says so
    }
    return Files.isWritable(folder)
        ? new ComputeCache(folder, true)
        : new ComputeCache(null, false);
  }

  /** Whether the driver can write to its folder in {@code home}, or make it. */
  private static boolean isWritable(String home) {
    try {
      Path folder = Path.of(home, ".nv", "ComputeCache");
      while (folder != null && Files.notExists(folder)) {
        folder = folder.getParent();
      }
      return folder != null && Files.isDirectory(folder) && Files.isWritable(folder);
    } catch (InvalidPathException e) {
      return false;
    }
  }

  /** Java can't change the environment that native code sees, and the C library can. */
  private static boolean setVariable(String value) {
    Linker linker = Linker.nativeLinker();
    FunctionDescriptor type =
        FunctionDescriptor.of(
            ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS, ValueLayout.JAVA_INT);
    return linker
        .defaultLookup()
        .find("setenv")
        .map(
            symbol -> {
              try (Arena arena = Arena.ofConfined()) {
                return (int)
                        linker
                            .downcallHandle(symbol, type)
                            .invokeExact(arena.allocateFrom(VARIABLE), arena.allocateFrom(value), 0)
                    == 0;
              } catch (Throwable e) { // declared by every native call
                throw new IllegalStateException("setenv", e);
              }
            })
        .orElse(false);
  }
}
