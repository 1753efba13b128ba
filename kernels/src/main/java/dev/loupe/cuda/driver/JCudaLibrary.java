package dev.loupe.cuda.driver;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.net.URL;
import java.nio.file.Files;
import java.nio.file.Path;
import jcuda.JCudaVersion;
import jcuda.LibUtils;
import org.jspecify.annotations.Nullable;

/**
 * JCuda's native libraries, out of its jars and into this process.
 *
 * <p>Left alone, JCuda unpacks a library under a fixed name into the folder {@code java.io.tmpdir},
 * where everyone may write, and loads whatever lies there under that name. Here it is unpacked once
 * into {@code jcuda-<version>} under {@code LOUPE_CACHE} if that is set, else under the user's
 * cache folder, which only the user can write to; if that can't be used, into a private folder
 * under the temporary one, each time. JCuda then finds it, as it reads {@code java.io.tmpdir} when
 * its class is initialised and nothing else in Java reads that property after start-up. A library
 * on {@code java.library.path} comes before ours: whoever starts the process chose it.
 */
public final class JCudaLibrary {
  private JCudaLibrary() {}

  /**
   * Initialises {@code owner}, a class of JCuda with native methods in {@code library}.
   *
   * @param library name without version and platform, e.g. {@code JCudaDriver}
   * @throws GpuException if there is none for this machine or it doesn't load
   */
  public static void load(Class<?> owner, String library) {
    String home = System.getProperty("user.home", "");
    load(
        owner,
        library,
        LibraryCache.folder(System::getenv, System.getProperty("os.name", ""), home));
  }

  static synchronized void load(Class<?> owner, String library, @Nullable Path cache) {
    String file = file(library);
    if (resource(owner, library) == null) {
      String jar = library.equals("JCublas2") ? "jcublas-natives" : "jcuda-natives";
      throw new GpuException(
          "JCuda's native library %s is missing: add org.jcuda:%s:%s for this system to the class path"
              .formatted(file, jar, JCudaVersion.get()));
    }
    Throwable failure = null;
    if (cache != null) {
      try {
        Path folder = cache.resolve("jcuda-" + JCudaVersion.get());
        LibraryCache.createPrivate(folder);
        loadFrom(folder, owner, file);
        return;
      } catch (IOException | IllegalArgumentException e) {
        failure = e; // a full disk, a read-only home, a file system that runs no programs
      }
    }
    try {
      loadOnceFrom(Files.createTempDirectory("loupe-"), owner, file); // its owner's only
    } catch (IOException | IllegalArgumentException e) {
      if (failure != null) {
        e.addSuppressed(failure);
      }
      throw new GpuException(
          ("JCuda's native library %s does not load (%s): set LOUPE_CACHE to a folder that can be"
                  + " written and may hold programs")
              .formatted(file, e.getMessage()),
          e);
    }
  }

  private static String file(String library) {
    return LibUtils.createLibraryFileName(
        LibUtils.createPlatformLibraryName(library + "-" + JCudaVersion.get()));
  }

  /**
   * Where a library lies, as a resource that the loader of {@code owner} finds; null if nowhere. On
   * a module path it is in another module than {@code owner}, which a class does not look into.
   */
  public static @Nullable URL resource(Class<?> owner, String library) {
    return resourceOf(owner, file(library));
  }

  private static @Nullable URL resourceOf(Class<?> owner, String file) {
    return owner.getClassLoader().getResource("lib/" + file);
  }

  private static void loadFrom(Path folder, Class<?> owner, String file) throws IOException {
    Path unpacked = unpack(owner, file, folder);
    try (Arena arena = Arena.ofConfined()) {
      // a class that fails to initialise is lost for good: see first that the library loads
      SymbolLookup.libraryLookup(unpacked, arena);
      initialize(owner, folder);
    }
  }

  private static void initialize(Class<?> owner, Path folder) {
    String usual = System.getProperty("java.io.tmpdir");
    System.setProperty("java.io.tmpdir", folder.toString());
    try {
      Class.forName(owner.getName(), true, owner.getClassLoader());
    } catch (ClassNotFoundException | LinkageError e) {
      throw new GpuException("JCuda does not start (%s)".formatted(e.getMessage()), e);
    } finally {
      System.setProperty("java.io.tmpdir", usual);
    }
  }

  /** Leaves nothing behind, except on Windows, which keeps the files of loaded libraries. */
  private static void loadOnceFrom(Path folder, Class<?> owner, String file) throws IOException {
    try {
      loadFrom(folder, owner, file);
    } finally {
      LibraryCache.deleteQuietly(folder.resolve(file));
      LibraryCache.deleteQuietly(folder);
    }
  }

  static Path unpack(Class<?> owner, String file, Path folder) throws IOException {
    URL url = resourceOf(owner, file);
    if (url == null) {
      throw new FileNotFoundException("JCuda has no " + file);
    }
    return LibraryCache.unpack(url.openConnection(), file, folder);
  }
}
