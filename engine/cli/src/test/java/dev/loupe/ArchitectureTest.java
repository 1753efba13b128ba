package dev.loupe;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideOutsideOfPackage;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideOutsideOfPackages;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.library.dependencies.SliceAssignment;
import com.tngtech.archunit.library.dependencies.SliceIdentifier;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** Which way dependencies point. */
class ArchitectureTest {
  private static final JavaClasses LOUPE =
      new ClassFileImporter()
          .withImportOption(ImportOption.Predefined.DO_NOT_INCLUDE_TESTS)
          .withImportOption(location -> !location.contains("-tests.jar")) // of other modules
          .importPackages("dev.loupe");

  @Test
  void weightsAndKernelsKnowNothingOfEachOtherOrOfTheEngine() {
    for (String module : new String[] {"dev.loupe.weights..", "dev.loupe.cuda.."}) {
      noClasses()
          .that()
          .resideInAPackage(module)
          .should()
          .dependOnClassesThat(resideInAPackage("dev.loupe..").and(resideOutsideOfPackage(module)))
          .check(LOUPE);
    }
  }

  @Test
  void theHubKnowsOnlyWeights() {
    noClasses()
        .that()
        .resideInAPackage("dev.loupe.hub..")
        .should()
        .dependOnClassesThat(
            resideInAPackage("dev.loupe..")
                .and(resideOutsideOfPackages("dev.loupe.hub..", "dev.loupe.weights..")))
        .check(LOUPE);
  }

  @Test
  void theModelKnowsNoHardware() {
    noClasses()
        .that()
        .resideInAnyPackage(
            "dev.loupe.model..", "dev.loupe.attention..", "dev.loupe.sampling..", "dev.loupe.ops")
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("dev.loupe.ops.cpu..", "dev.loupe.ops.cuda..", "dev.loupe.cuda..")
        .check(LOUPE);
  }

  /** Of the kernels, generation knows what they throw. */
  @Test
  void nothingButTheDoorChoosesABackend() {
    noClasses()
        .that()
        .resideInAnyPackage(
            "dev.loupe.generate..",
            "dev.loupe.interpret..",
            "dev.loupe.text..",
            "dev.loupe.export..",
            "dev.loupe.corpus..")
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("dev.loupe.ops.cpu..", "dev.loupe.ops.cuda..")
        .check(LOUPE);
  }

  @Test
  void nothingKnowsTheCommandLine() {
    noClasses()
        .that()
        .resideOutsideOfPackage("dev.loupe.cli..")
        .should()
        .dependOnClassesThat()
        .resideInAPackage("dev.loupe.cli..")
        .check(LOUPE);
  }

  @Test
  void onlyTheServerSpeaksHttpAndOnlyTheCommandLineKnowsIt() {
    noClasses()
        .that()
        .resideOutsideOfPackages("dev.loupe.serve..", "dev.loupe.cli..")
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("dev.loupe.serve..", "io.netty..")
        .check(LOUPE);
    noClasses()
        .that()
        .resideInAPackage("dev.loupe.serve..")
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("java.nio.file..", "java.nio.channels..")
        .check(LOUPE);
  }

  @Test
  void corporaNeedNoSparkHere() {
    noClasses()
        .should()
        .dependOnClassesThat()
        .resideInAnyPackage("org.apache.spark..", "org.apache.hadoop..", "scala..")
        .check(LOUPE);
    ClassLoader here = ArchitectureTest.class.getClassLoader();
    for (String name : new String[] {"org/apache/spark/SparkContext", "scala/Option"}) {
      assertNull(here.getResource(name + ".class"), name);
    }
  }

  @Test
  void theVectorApiIsUsedInTwoPlacesThatAreLoadedWhereItIsThere() {
    noClasses()
        .that()
        .doNotHaveFullyQualifiedName("dev.loupe.ops.cpu.VectorLoops")
        .and()
        .doNotHaveFullyQualifiedName("dev.loupe.bench.Probe")
        .should()
        .dependOnClassesThat()
        .resideInAPackage("jdk.incubator.vector..")
        .check(LOUPE);
  }

  /** The root package is one of them. */
  @Test
  void packagesHaveNoCycles() {
    slices()
        .assignedFrom(
            new SliceAssignment() {
              @Override
              public SliceIdentifier getIdentifierOf(JavaClass each) {
                return SliceIdentifier.of(each.getPackageName());
              }

              @Override
              public String getDescription() {
                return "packages";
              }
            })
        .should()
        .beFreeOfCycles()
        .check(LOUPE);
  }

  /** What a reader has to know at once. Types within types count with the outer one. */
  @Test
  void noPackageHasMoreThan25Types() {
    Map<String, Long> types =
        LOUPE.stream()
            .filter(type -> !type.getSimpleName().equals("package-info"))
            .filter(type -> !type.getName().contains("$"))
            .collect(Collectors.groupingBy(JavaClass::getPackageName, Collectors.counting()));
    types.values().removeIf(count -> count <= 25);
    assertEquals(Map.of(), types);
  }
}
