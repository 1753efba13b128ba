package dev.loupe.serve;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.export.page.PageModules;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** How the modules of the workbench import each other. */
class PageModulesTest {
  private static final Pattern IMPORT =
      Pattern.compile("^(?:import|export) .* from '\\./([a-z-]+\\.js)'", Pattern.MULTILINE);

  private final Set<String> walked = new TreeSet<>();

  @Test
  void noModuleImportsItselfThroughOthers() {
    walk("main.js", new LinkedHashSet<>());
    assertTrue(walked.contains("api.js") && walked.contains("colour.js"), walked.toString());
  }

  private void walk(String module, Set<String> importers) {
    assertTrue(
        importers.add(module), () -> String.join(" imports ", importers) + " imports " + module);
    if (!module.equals("lit-html.js") && walked.add(module)) {
      Matcher imports =
          IMPORT.matcher(PageModules.read(module).orElseGet(() -> Page.read("page/" + module)));
      while (imports.find()) {
        walk(imports.group(1), importers);
      }
    }
    importers.remove(module);
  }

  @Test
  void aNameIsThatOfOneModule() {
    walk("main.js", new LinkedHashSet<>());
    walked.removeIf(module -> PageModules.read(module).isEmpty());
    assertFalse(walked.isEmpty());
    for (String shared : walked) {
      assertNull(Page.class.getResource("page/" + shared), shared);
    }
  }
}
